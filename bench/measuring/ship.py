# ship.py
#   What it costs to send the trail to Kafka, and how far that is behind.
#
# First a trail that is there is shipped as fast as that goes, again and again, in plain
# text and by TLS: to a broker on this machine, which takes its share of the CPUs.  What
# the program needs to start, to connect and to end is measured by a run of its own, just
# before, which ships the last few records only, and is subtracted.
#
# Then a server is busy, with and without the program beside it, as fast as it can and at
# half that rate.  The lag is the age of the oldest record that the broker has not
# acknowledged: what the program says each second it has acknowledged is compared with the
# times in the trail.
#
# Copyright (c) 2026, pg_audit_queue contributors

import datetime
import math
import mmap
import os
import re
import shutil
import statistics
import time
from collections import namedtuple

import cpu
import figures
import kafka
import layers
import load as pgbench
import picture
import shipper
import trail
from cluster import Failure
from load import Load
from text import grid, ratio_text, spread_text, table, tables, verdict_text

NAME = "ship"
TITLE = "Sending the trail to Kafka"

# How a trail is shipped: the cipher of TLS 1.3, None for plain text, and properties of
# librdkafka, others than the program's
Way = namedtuple("Way", "cipher properties")

AES128, AES256 = "TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384"
UNCOMPRESSED = {"compression.codec": "none"}
PLAIN = "plain"
WAYS = {PLAIN: Way(None, {}), "tls_aes128": Way(AES128, {}), "tls_aes256": Way(AES256, {}),
        "uncompressed": Way(None, UNCOMPRESSED),
        "uncompressed_aes128": Way(AES128, UNCOMPRESSED),
        "uncompressed_aes256": Way(AES256, UNCOMPRESSED)}

# Those beside which a server is busy
ALONE, SHIPPED = "queued", "shipped"

TRAIL = "trail"

# Loads of the server, as the report calls them
LOADS = {"select": "SELECTs by key, prepared", "tpcb": "TPC-B, synchronous_commit = off"}
SCRIPTS = {"select": "select-only", "tpcb": "tpcb-like"}
HALF = 0.5

DEFAULTS = {"rounds": 5, "seconds": 20, "clients": 8, "megabytes": 2000}
QUICK = {"rounds": 1, "seconds": 3, "clients": 8, "megabytes": 200}

# Of a record, about, for as many of them as make a trail of some size
RECORD_BYTES = 1250

# Consumers: of the whole trail, and of its last records
WHOLE, LAST = "whole", "last"

# Topics: of the trail, of last records, and of a busy server
TOPICS = (TRAIL, LAST, SHIPPED)

LOG_TIME = re.compile(rb'"logTime":"([^"]+)"')


def BASE(load):
    """What ratios are formed to"""
    return PLAIN if load == TRAIL else ALONE


TRAIL_COLUMNS = (
    ("configuration", lambda row: row["configuration"]),
    ("records/s", lambda row: spread_text(row, "records_s", "{:.0f}")),
    ("of plain", lambda row: ratio_text(row, "records_s")),
    ("ship, us/record", lambda row: spread_text(row, "ship_us_record", "{:.2f}")),
    ("of plain", lambda row: ratio_text(row, "ship_us_record")),
    ("broker, us/record", lambda row: spread_text(row, "broker_us_record", "{:.2f}")),
    ("of plain", lambda row: ratio_text(row, "broker_us_record")),
    ("MB/s", lambda row: spread_text(row, "mb_s", "{:.0f}")),
    ("ship, of its CPU", lambda row: spread_text(row, "program_share", "{:.2f}", False)),
    ("stolen", lambda row: spread_text(row, "stolen_share", "{:.2f}", False)),
    ("start, s", lambda row: spread_text(row, "start_s", "{:.2f}", False)),
    ("records", lambda row: spread_text(row, "records", "{:.0f}", False)),
    ("trail", lambda row: verdict_text([row])),
)

SERVER_COLUMNS = (
    ("configuration", lambda row: row["configuration"]),
    ("tps", lambda row: spread_text(row, "tps", "{:.0f}")),
    ("of queued", lambda row: ratio_text(row, "tps")),
    ("latency, ms", lambda row: spread_text(row, "latency_ms", "{:.2f}")),
    ("of queued", lambda row: ratio_text(row, "latency_ms")),
    ("p50, ms", lambda row: spread_text(row, "p50_ms", "{:.2f}")),
    ("p99, ms", lambda row: spread_text(row, "p99_ms", "{:.2f}")),
    ("records", lambda row: spread_text(row, "records", "{:.0f}", False)),
    ("trail", lambda row: verdict_text([row])),
)

LAG_COLUMNS = (
    ("configuration", lambda row: row["configuration"]),
    ("lag, s", lambda row: spread_text(row, "lag_s", "{:.2f}")),
    ("longest lag, s", lambda row: spread_text(row, "lag_max_s", "{:.2f}")),
    ("behind, s", lambda row: spread_text(row, "behind_s", "{:.1f}")),
    ("ship, us/record", lambda row: spread_text(row, "ship_us_record", "{:.2f}")),
    ("broker, us/record", lambda row: spread_text(row, "broker_us_record", "{:.2f}")),
)


def run(bench, result, options):
    missing = _missing(bench, options)
    queued = bench.standard["queued"]
    trails = bench.pick(result, [queued.variant(name, {}, missing=missing) for name in WAYS])
    servers = bench.pick(result, [queued.variant(name, {}, missing=missing)
                                  for name in (ALONE, SHIPPED)])
    result["published"] = layers.PUBLISHED
    if missing:
        result["absent"]["runs"] = missing
        return
    for configuration in trails:
        result["configurations"][configuration.name].update(WAYS[configuration.name]._asdict())
    broker = kafka.Broker(os.path.join(bench.cluster.folder, "kafka"))
    beside = Beside(bench, broker)
    try:
        broker.start()
        for topic in TOPICS:
            broker.topic(topic)
        program_cpus, broker_cpus = cpu.divided()
        broker.move(broker_cpus)
        _ship_trail(bench, result, options, broker, trails, program_cpus)
        broker.move(program_cpus | broker_cpus)
        _load_server(bench, result, options, beside, servers)
    finally:
        beside.kill()
        broker.destroy()


def _missing(bench, options):
    """Why nothing can be measured; None if it can"""
    if options.format != "json":
        return "only files of format json are shipped"
    return shipper.absent(bench.cluster) or kafka.absent()


def _folder(bench):
    """Of the trail"""
    return os.path.join(bench.cluster.data, bench.standard["queued"].folder)


def _wrong_figures(last, arrived):
    """What is wrong with what was shipped, by the program's last statistics; None: nothing"""
    if last["missing"] or last["failures"]:
        return f"{last['missing']} records missing, {last['failures']} failures of Kafka"
    if arrived != last["records"]:
        return f"the topic got {arrived} records of {last['records']}"
    return None


# -- a trail that is there --------------------------------------------------------------

def _ship_trail(bench, result, options, broker, configurations, cpus):
    if not configurations:
        return
    result["loads"][TRAIL] = {"megabytes": options.megabytes, "clients": options.clients}
    made = {"load": "made", "configuration": ALONE, "round": 1}
    bench.attempt(made, _make_trail, bench, options)
    if made["verdict"] != "ok":
        result["absent"][TRAIL] = made["verdict"]
        return
    shipping = Shipping(bench, broker, cpus)
    print(f"  a trail of {shipping.records} records, {shipping.bytes / 1e6:.0f} MB", flush=True)

    # Until the broker's code has been compiled
    for configuration in configurations:
        shipping.once(WHOLE, TRAIL, WAYS[configuration.name])
    for each, _, configuration in bench.turns(result, (TRAIL,), configurations, options.rounds):
        bench.attempt(each, shipping.measure, configuration)
        text = "{:>9.0f} records/s {:>6.2f} + {:.2f} us".format(
            each["records_s"], each["ship_us_record"], each.get("broker_us_record", math.nan)) \
            if "records_s" in each else " " * 34
        print(f"  round {each['round']}/{options.rounds}  {TRAIL:<14} {configuration.name:<20} "
              f"{text}   trail: {each['verdict']}", flush=True)


def _make_trail(run, bench, options):
    """A trail, half of it of SELECTs and half of TPC-B, and two consumers of it"""
    cluster, queued = bench.cluster, bench.standard["queued"]
    each = options.megabytes * 1e6 / 2 / RECORD_BYTES / options.clients
    cluster.start({"synchronous_commit": "off", **bench.settings_of(queued)})
    cluster.query(f"SELECT audit_consumer_create('{WHOLE}')")
    expected = 0
    for name, script in SCRIPTS.items():
        load = Load(name, script, options.clients, log=False)
        load.transactions = 1 + int(each / load.statements)
        found = pgbench.run(cluster, load, os.path.join(bench.scratch, "pgbench"))
        expected += found["transactions"] * load.statements + load.startup_statements
    cluster.wait_for_clients()
    cluster.query(f"SELECT audit_consumer_create('{LAST}', true)")
    bench.flush(queued)
    bench.check(run, queued, expected)


class Shipping:
    """Ships a trail that is there, whose server has stopped, as often as needed.  cpus: those
    that the program uses."""

    def __init__(self, bench, broker, cpus):
        self.cluster = bench.cluster
        self.broker = broker
        self.cpus = cpus
        self.folder = _folder(bench)
        self.saved = bench.scratch
        self.records, self.bytes = 0, 0
        for path in trail.files_of(self.folder):
            with open(path, "rb") as file:
                for line in file:
                    self.records += 1
                    self.bytes += len(line)
        for name in (WHOLE, LAST):
            shutil.copyfile(self._consumer(name), os.path.join(self.saved, name))

    def _consumer(self, name):
        return os.path.join(self.folder, trail.BESIDE + "consumer." + name)

    def once(self, consumer, topic, way):
        """Ship what that consumer has not got, as it was made.  Returns the program's last
        statistics, and with them CPU time: the broker's, "brokerSeconds", and what the machine
        below this one gave to others, "stolenSeconds"; and the CPUs that it had, "cpus"."""
        shutil.copyfile(os.path.join(self.saved, consumer), self._consumer(consumer))
        before, stolen = self.broker.cpu_s(), cpu.stolen()
        program = shipper.Shipper(self.cluster, self.broker, self.folder, consumer, topic,
                                  way.cipher, way.properties, once=True, cpus=self.cpus)
        try:
            last = program.finish()
        finally:
            program.kill()
        return {**last, "brokerSeconds": self.broker.cpu_s() - before,
                "stolenSeconds": cpu.stolen() - stolen, "cpus": program.cpus}

    def measure(self, run, configuration):
        way = WAYS[configuration.name]
        start = self.once(LAST, LAST, way)
        before = self.broker.end_before(TRAIL)
        self.broker.handshakes()
        last = self.once(WHOLE, TRAIL, way)
        used = set(self.broker.handshakes())
        records, seconds, cpu_s, broker_s = (
            last[name] - start[name]
            for name in ("records", "seconds", "cpuSeconds", "brokerSeconds"))
        if min(records, seconds, cpu_s) <= 0:
            raise Failure("shipping the trail takes no longer than its last records: it is too "
                          "small")
        run.update(
            records=last["records"], bytes=last["bytes"], records_s=records / seconds,
            mb_s=(last["bytes"] - start["bytes"]) / 1e6 / seconds,
            ship_us_record=cpu_s * 1e6 / records,
            start_s=start["seconds"], start_cpu_s=start["cpuSeconds"],
            program_share=cpu_s / seconds,
            stolen_share=last["stolenSeconds"] / last["seconds"] / os.cpu_count(),
            program_cpus=last["cpus"], broker_cpus=self.broker.cpus(),
            tls=sorted(used), verdict="ok")
        # Java compiles code and collects garbage at times of its own.  With a small trail that
        # can be more than what the records cost, and then there is no figure.
        if broker_s > 0:
            run["broker_us_record"] = broker_s * 1e6 / records
        wrong = _wrong_figures(last, self.broker.end_of(TRAIL) - before)
        if wrong:
            run["verdict"] = wrong
        elif last["records"] != self.records:
            run["verdict"] = f"{last['records']} of {self.records} records"
        elif used != ({"TLSv1.3 " + way.cipher} if way.cipher else set()):
            run["verdict"] = "connected by " + (", ".join(run["tls"]) or "no TLS")


# -- beside a server --------------------------------------------------------------------

def _load_server(bench, result, options, beside, configurations):
    if not configurations:
        return
    settings = {"select": {}, "tpcb": {"synchronous_commit": "off"}}
    saturated = [Load(name, script, options.clients, seconds=options.seconds, log=False,
                      settings=settings[name]) for name, script in SCRIPTS.items()]
    bench.alternate(result, saturated, configurations, options.rounds, beside)

    speeds = {row["load"]: row["tps"]["median"] for row in figures.summarize(result["runs"])
              if row["configuration"] == ALONE and "tps" in row}
    half = [Load(half_of(load.name), load.script, options.clients, seconds=options.seconds,
                 rate=HALF * speeds[load.name], settings=load.settings)
            for load in saturated if load.name in speeds]
    if len(half) < len(saturated):
        result["absent"]["half"] = f"the configuration {ALONE} has no speed that it is half of"
    bench.alternate(result, half, configurations, options.rounds, beside)


def half_of(load):
    return load + " half"


class Beside:
    """The program, following the trail of a server that is busy, and what it says
    meanwhile; nothing in runs of the other configuration."""

    def __init__(self, bench, broker):
        self.bench = bench
        self.cluster = bench.cluster
        self.broker = broker
        self.program = None

    def begin(self, configuration):
        self.kill()
        if configuration.name != SHIPPED:
            return
        self.before = self.broker.end_before(SHIPPED)
        self.cluster.query(f"SELECT audit_consumer_create('{SHIPPED}')")
        self.program = shipper.Shipper(self.cluster, self.broker, _folder(self.bench), SHIPPED,
                                       SHIPPED)
        self.first = self.program.wait_for(self._flushed()).figures
        self.broker_before = self.broker.cpu_s()
        self.began = time.time()

    def _flushed(self):
        return int(self.cluster.query("SELECT audit_flush()")[0][0])

    def end(self, run):
        """The load has ended: wait until all of it has been shipped, too."""
        if self.program is None:
            return
        self.ended = self.began + run["pgbench_seconds"]
        line = self.program.wait_for(self._flushed())
        run["behind_s"] = max(0.0, line.time - self.ended)
        broker_s = self.broker.cpu_s() - self.broker_before
        records = line.figures["records"] - self.first["records"]
        cpu_s = line.figures["cpuSeconds"] - self.first["cpuSeconds"]
        run.update(shipped=records, ship_us_record=cpu_s * 1e6 / records,
                   broker_us_record=broker_s * 1e6 / records)
        self.last = self.program.stop()

    def check(self, run):
        """Was all shipped, and how far was it behind while the load went on?"""
        if self.program is None:
            return
        wrong = _wrong_figures(self.last, self.broker.end_of(SHIPPED) - self.before)
        if wrong and run["verdict"] == "ok":
            run["verdict"] = wrong
        lines = [line for line in self.program.lines if self.began <= line.time <= self.ended]
        self.program = None
        lags = lags_of(trail.files_of(_folder(self.bench)),
                       [(line.time, line.figures["sequence"]) for line in lines])
        if lags:
            run["lag_s"], run["lag_max_s"] = statistics.median(lags), max(lags)
            run["lags"] = [round(lag, 3) for lag in lags]
            run["lag_records"] = statistics.median(line.figures["lagRecords"] for line in lines)

    def kill(self):
        if self.program is not None:
            self.program.kill()
            self.program = None


def lags_of(files, seen):
    """For each time, in seconds, and sequence of the last record that was acknowledged then:
    how old the next record of the trail was, in seconds; 0 if there was none yet."""
    times = _log_times(files, {sequence + 1 for _, sequence in seen})
    return [max(0.0, when - times.get(sequence + 1, when)) for when, sequence in seen]


def _log_times(files, sequences):
    """Times of those records that there are, in seconds, by their sequences"""
    found = {}
    for path in files:
        if os.path.getsize(path) == 0:
            continue
        with open(path, "rb") as file, \
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            for sequence in sequences:
                line = _line_of(text, sequence)
                if line:
                    when = LOG_TIME.search(line).group(1).decode()
                    found[sequence] = datetime.datetime.fromisoformat(when).timestamp()
    return found


def _line_of(text, sequence):
    """The line with that sequence, of a file in their order; None if it is not there"""
    low, high = 0, len(text)        # of bytes in which a line that may be it begins
    while low < high:
        begin = text.rfind(b"\n", 0, (low + high) // 2) + 1
        end = text.find(b"\n", begin) + 1 or len(text)
        line = text[begin:end]
        number = int(trail.JSON_START.match(line).group(2))
        if number == sequence:
            return line
        if number < sequence:
            low = end
        else:
            high = begin
    return None


# -- what is shown ----------------------------------------------------------------------

def report(result):
    text = []
    rows = [row for row in result["medians"] if row["load"] == TRAIL]
    if rows:
        text += [f"### A trail of {result['loads'][TRAIL]['megabytes']} MB, from its files", "",
                 table(TRAIL_COLUMNS, rows), "",
                 "The program had one CPU, the broker the others if there are any. Without the program's start "
                 "and end, which took the time in column \"start\". \"Of its CPU\" is the part of "
                 "the time in which the program had it; \"stolen\" is the part of all CPUs' time "
                 "that the machine below a virtual one gave to others. "
                 + _tls_text(result), ""]
    for name, title in LOADS.items():
        rate = result["loads"].get(half_of(name), {}).get("rate")
        text += tables(result, (
            (name, f"{title}, as fast as the server can"),
            (half_of(name), f"{title}, at {rate:.0f} transactions a second, {HALF} of that"
             if rate else "")), SERVER_COLUMNS, LAG_COLUMNS)
    if result["medians"]:
        text += ["\"Lag\" is the age of the oldest record that the broker has not acknowledged, "
                 "its median during the load, and the longest; \"behind\" is how long it took, "
                 "when the load had ended, until all was acknowledged, to the second.", ""]
    return text + layers.published_table(result["published"])


def _tls_text(result):
    used = {each["configuration"]: ", ".join(each["tls"]) for each in result["runs"]
            if each.get("tls")}
    return "As the broker says, the connections had " + "; ".join(
        f"{name}: {text}" for name, text in used.items()) + "." if used else ""


def pictures(result, plot):
    rows = [row for row in result["medians"] if row["load"] == TRAIL]
    plot.bars("Shipping a trail", "records a second; higher is better",
              [picture.bar(row, row.get("records_s"), "{:.0f}") for row in rows])
    plot.grouped("CPU time of a record that is shipped", "microseconds; lower is better", rows,
                 (("ship_us_record", "pg_audit_trail ship"), ("broker_us_record", "broker")))
    rows = [row for row in result["medians"] if row["configuration"] == SHIPPED]
    plot.bars("Throughput of a server whose trail is shipped, of that without",
              "ratio; higher is better",
              [_bar(row, row["ratio"].get("tps"), "{:.3f}") for row in rows])
    plot.bars("Lag while the server is busy", "s; lower is better",
              [_bar(row, row.get("lag_s"), "{:.2f}") for row in rows])


def _bar(row, figure, layout):
    """A bar for a load, where all are of one configuration"""
    return picture.Bar(row["load"], figure, layout, row["verdict"], picture.OURS)
