# main.py
#   The benchmark: runs commands, keeps the measurements, shows them.
#
# Run by launch.sh for bench/das and the others, which describe the options.
#
# Copyright (c) 2026, pg_audit_queue contributors

import argparse
import datetime
import json
import os
import shutil
import signal
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# for its proto.py
sys.path.append(os.path.join(os.path.dirname(HERE), "torturing"))

import clients  # noqa: E402
import crash  # noqa: E402
import das  # noqa: E402
import layers  # noqa: E402
import machine  # noqa: E402
import oracle  # noqa: E402
import picture  # noqa: E402
import record  # noqa: E402
import ship  # noqa: E402
import table  # noqa: E402
from bench import Bench  # noqa: E402
from cluster import Cluster, Failure  # noqa: E402
from figures import summarize  # noqa: E402
from processes import adopt_orphans  # noqa: E402

# Raised when a figure's meaning, name or place changes
FORMAT = 1

COMMANDS = {command.NAME: command for command in (das, oracle, clients, table, crash, record,
                                                      layers, ship)}

# SIGINT, too: a shell's background job is started with it ignored.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

SCALE = 50
QUICK_SCALE = 10
PAIRS = 30
QUICK_PAIRS = 3


def parse_options():
    parser = argparse.ArgumentParser(prog="bench", allow_abbrev=False)
    parser.add_argument("command", choices=list(COMMANDS) + ["all"])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=positive)
    parser.add_argument("--seconds", type=positive)
    parser.add_argument("--pairs", type=positive)
    parser.add_argument("--transactions", type=positive)
    parser.add_argument("--megabytes", type=positive)
    parser.add_argument("--clients", type=positive)
    parser.add_argument("--scale", type=positive)
    parser.add_argument("--configs", type=lambda text: text.replace(",", " ").split())
    parser.add_argument("--format", choices=("json", "csvlog", "pgaudit"),
                        default="json")
    parser.add_argument("--set", action="append", default=[], type=setting)
    parser.add_argument("--output", default="bench-results")
    parser.add_argument("--report")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--folder")
    parser.add_argument("--bindir")
    parser.add_argument("--commit")
    parser.add_argument("--instructions")
    return parser.parse_args()


def positive(text):
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def setting(text):
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError
    return name, value


def options_of(command, options):
    """The options, with the command's defaults for what was not said."""
    mine = argparse.Namespace(**vars(options))
    for name, value in (command.QUICK if options.quick else command.DEFAULTS).items():
        if getattr(mine, name) is None:
            setattr(mine, name, value)
    return mine


# -- measuring --------------------------------------------------------------------

def measure(options, folder):
    """Run the commands; returns everything that was measured."""
    commands = COMMANDS.values() if options.command == "all" else [COMMANDS[options.command]]
    socket_folder = tempfile.mkdtemp(prefix="paq.")
    cluster = Cluster(options.bindir, folder, socket_folder)
    scratch = os.path.join(folder, "scratch")
    os.mkdir(scratch)
    result = {
        "format": FORMAT,
        "command": options.command,
        "quick": options.quick,
        "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": options.commit or None,
        "machine": machine.describe(options.bindir, folder),
        "settings": {"scale": options.scale, "format": options.format,
                     "server": dict(options.set)},
        "commands": {},
    }
    begin = time.monotonic()
    try:
        print(f"Making a cluster, scale {options.scale}", flush=True)
        cluster.make(options.scale)
        pkglibdir = machine.output_of(cluster.program("pg_config"), "--pkglibdir")
        bench = Bench(options, cluster, pkglibdir, scratch)
        for command in commands:
            result["commands"][command.NAME] = run_command(bench, command, options)
    finally:
        cluster.destroy()
        shutil.rmtree(socket_folder, ignore_errors=True)
    for name in set(options.configs or ()) - bench.named:
        print(f"There is no configuration {name}")
        bench.wrong += 1
    result["seconds"] = round(time.monotonic() - begin, 1)
    result["wrong"] = bench.wrong
    return result


def run_command(bench, command, options):
    mine = options_of(command, options)
    print(f"{command.NAME}: {command.TITLE}", flush=True)
    result = {
        "title": command.TITLE,
        "options": {name: getattr(mine, name) for name in
                    ("rounds", "seconds", "transactions", "megabytes", "clients")},
        "configurations": {}, "loads": {}, "runs": [], "absent": {},
    }
    begin = time.monotonic()
    command.run(bench, result, mine)
    result["medians"] = summarize(result["runs"], getattr(command, "BASE", "none"))
    result["seconds"] = round(time.monotonic() - begin, 1)
    # A command that has nothing to measure here says so itself: what is absent is not wrong.
    if not result["runs"] and "runs" not in result["absent"]:
        result["absent"]["runs"] = "there is nothing to measure with these options"
        bench.wrong += 1
    return result


# -- showing ----------------------------------------------------------------------

def report(result):
    """Everything that was found, as Markdown."""
    lines = []
    for name, what in result["commands"].items():
        lines += [f"## {name}: {what['title']}", ""]
        lines += [f"Medians (from..to) of {measured(what)}.", ""]
        lines += COMMANDS[name].report(what)
        lines += absences(what)
    lines += ["## Machine", ""]
    lines += [f"- {name}: {text}" for name, text in machine.lines(result)]
    server = ", ".join(f"{name} = {value}" for name, value in result["settings"]["server"].items())
    lines += [f"- settings: scale {result['settings']['scale']}, all classes audited, format "
              f"{result['settings']['format']}" + (", " + server if server else ""),
              f"- measured: {result['started']}, {result['seconds']:.0f} s"
              + (", --quick: an order of magnitude, not per cents" if result["quick"] else "")]
    return "\n".join(lines) + "\n"


def measured(what):
    options = what["options"]
    words = [f"{options['rounds']} round{'s' if options['rounds'] > 1 else ''}"]
    if options["seconds"]:
        words.append(f"{options['seconds']} s a run")
    if options["transactions"]:
        words.append(f"{options['transactions']} transactions a client")
    if options["clients"]:
        words.append(f"{options['clients']} clients")
    return ", ".join(words)


def absences(what):
    """What is not there, and why."""
    lines = [f"- {name}: {each['absent']}" for name, each in what["configurations"].items()
             if "absent" in each]
    lines += [f"- {name}: {reason}" for name, reason in what["absent"].items()]
    for each in what["runs"]:
        name = f"{each['load']}, {each['configuration']}, round {each['round']}"
        if "absent" in each:
            lines.append(f"- {name}: {each['absent'].splitlines()[0]}")
        if "cpu_absent" in each:
            lines.append(f"- {name}, CPU: {each['cpu_absent']}")
    return ["Absent:", ""] + lines + [""] if lines else []


def draw(result, folder):
    for name, what in result["commands"].items():
        command = COMMANDS[name]
        drawings = [(name, f"{name}: {what['title']}", command.pictures, 1)]
        drawings += [(f"{name}-{ending}", title, function, picture.LARGE)
                     for ending, title, function in getattr(command, "MORE_PICTURES", ())]
        for each, title, function, scale in drawings:
            plot = picture.Plot(
                title, [f"Median and range of {measured(what)}"
                        + (", --quick: an order of magnitude" if result["quick"] else ""),
                        machine.caption(result)], picture.ours(what), scale)
            function(what, plot)
            reason = plot.write(os.path.join(folder, each))
            if reason:
                print(f"There is no picture {each}: {reason}")
                what["absent"]["picture"] = reason


def show(result, folder):
    """Tables, pictures, JSON."""
    os.makedirs(folder, exist_ok=True)
    draw(result, folder)
    text = report(result)
    path = os.path.join(folder, result["command"])
    with open(path + ".md", "w", encoding="utf-8") as file:
        file.write(text)
    with open(path + ".json", "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
        file.write("\n")
    print("\n" + text, flush=True)


def run(options):
    if options.folder:
        folder = os.path.abspath(options.folder)
        os.mkdir(folder, 0o700)
    else:
        folder = tempfile.mkdtemp(prefix="paq_bench.")
    adopt_orphans()
    options.scale = options.scale or (QUICK_SCALE if options.quick else SCALE)
    options.pairs = options.pairs or (QUICK_PAIRS if options.quick else PAIRS)
    keep = True
    try:
        result = measure(options, folder)
        show(result, options.output)
        keep = options.keep or result["wrong"] > 0
    except Failure as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Ended by a signal", file=sys.stderr)
        keep = options.keep
        return 1
    finally:
        if keep:
            print(f"The files are in {folder}", flush=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if result["wrong"]:
        print(f"bench: {result['wrong']} time(s) there was no result, or a trail was wrong",
              file=sys.stderr)
    return 1 if result["wrong"] else 0


def end(signum, frame):
    """Handler of signals: end, and let no other one disturb that."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def main():
    for signum in SIGNALS:
        signal.signal(signum, end)
    options = parse_options()
    if options.report:
        with open(options.report, encoding="utf-8") as file:
            show(json.load(file), options.output)
        return 0
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
