# picture.py
#   Pictures, by gnuplot, as SVG and PNG.
#
# The pictures do without colour: configurations are told apart by names, by
# patterns or by the form of points.
#
# Copyright (c) 2026, pg_audit_queue contributors

import math
import os
import subprocess

# Pixels
WIDTH = 1000
LEFT = 250
RIGHT = 130

# Heights: of a bar, of what is above all panels, of what is above and below the
# plot in a panel, of a legend, of a panel with lines
BAR = 22
HEAD = 66
ABOVE = 34
BELOW = 58
PANEL = ABOVE + BELOW
KEY = 22
LINES = 340

# In place of a verdict
PUBLISHED = "published"

FILLS = ('solid 0.35 border lc "black"', 'pattern 0 border lc "black"',
         'pattern 2 border lc "black"')
POINTS = (6, 7, 4, 5, 8, 9)

TERMINALS = (("svg", 'svg size {width},{height} font "sans,13" background "white"'),
             ("png", 'pngcairo size {width},{height} font "sans,10"'))


def bar(row, figure, layout="{:.3f}"):
    """A bar for a row of medians: name, figure, layout of its label, verdict."""
    return (row["configuration"], figure, layout, row["verdict"])


def _quote(text):
    return '"' + str(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _nice(value):
    """The end of an axis that has to reach a value."""
    if value <= 0:
        return 1
    step = 10 ** math.floor(math.log10(value))
    return next(step * factor for factor in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
                if step * factor >= value)


def _data_of(bars, wanted):
    """Lines for the bars with a fill: ends, labels' places, labels, edges; and for
    the ranges of those that were measured several times."""
    data, ranges = [], []
    for i, (_, figures) in enumerate(bars):
        width = 0.8 / len(figures)
        for place, (figure, text, fill) in enumerate(figures):
            middle = -i + 0.4 - width * (place + 0.5)
            if fill != wanted:
                continue
            data.append(f"{figure['median']} {middle} {max(figure['max'], 0)} {_quote(text)} "
                        f"{middle - width / 2} {middle + width / 2}")
            if figure["runs"] > 1:
                ranges.append(f"{figure['median']} {middle} {figure['min']} {figure['max']}")
    return data, ranges


class Plot:
    """A picture of panels, one below the other."""

    def __init__(self, title, caption):
        self.title = title
        self.caption = caption
        self.panels = []        # height, and what draws it

    # -- panels -------------------------------------------------------------------

    def bars(self, title, unit, items):
        """One bar for each: name, figure or number, layout, verdict.  Those that
        others have published are white."""
        bars = []
        for name, figure, layout, verdict in items:
            if figure is None:
                continue
            if not isinstance(figure, dict):
                figure = {"median": figure, "min": figure, "max": figure, "runs": 1}
            text = (layout or "{:.3f}").format(figure["median"])
            if verdict not in ("ok", None, PUBLISHED):
                text += "  WRONG"
            bars.append((name, [(figure, text, 1 if verdict == PUBLISHED else 0)]))
        self._bars(title, unit, bars, None)

    def grouped(self, title, unit, rows, series):
        """For each row a bar of each series: key, name."""
        bars = [(row["configuration"],
                 [(row[key], f"{row[key]['median']:.4g}", place)
                  for place, (key, _) in enumerate(series)])
                for row in rows if all(key in row for key, _ in series)]
        self._bars(title, unit, bars, [name for _, name in series])

    def _bars(self, title, unit, bars, legend):
        """legend: names of the fills; None: there is no need to name them"""
        if not bars:
            return
        height = PANEL + BAR * sum(0.3 + 0.75 * len(figures) for _, figures in bars)
        every = [figure for _, figures in bars for figure, _, _ in figures]
        end = _nice(max(figure["max"] for figure in every) * 1.02)
        low = min(figure["min"] for figure in every)
        start = -_nice(-low) if low < 0 else 0
        commands = [
            f"set title {_quote(title)}", f"set xlabel {_quote(unit)}",
            f"set xrange [{start}:{end}]",
            "set ytics scale 0 noenhanced ("
            + ", ".join(f"{_quote(name)} {-i}" for i, (name, _) in enumerate(bars)) + ")",
            f"set yrange [{-len(bars) + 0.4}:0.6]", "set grid xtics", "unset logscale",
        ]
        plots = []
        for fill in sorted({fill for _, figures in bars for _, _, fill in figures}):
            block, ranges = self._blocks(commands, fill, *_data_of(bars, fill))
            name = f"title {_quote(legend[fill])}" if legend else "notitle"
            plots += [f'{block} using ($1/2):2:(0):1:5:6 with boxxyerror fs {FILLS[fill]} '
                      f'lc "black" {name}',
                      f'{block} using 3:2:4 with labels left offset 0.8,0 notitle']
            if ranges:
                plots.append(f'{ranges} using 1:2:3:4 with xerrorbars pt 0 lw 2 lc "black" notitle')
        commands.append("plot " + ", \\\n     ".join(plots))
        self.panels.append((height + (KEY if legend else 0), KEY if legend else 0, commands))

    def _blocks(self, commands, name, data, ranges):
        """Put data and ranges into the script; returns their names, None if empty."""
        names = []
        for kind, lines in (("d", data), ("r", ranges)):
            names.append(f"${kind}{len(self.panels)}_{name}" if lines else None)
            if lines:
                commands += [f"{names[-1]} << EOD"] + lines + ["EOD"]
        return names

    def lines(self, title, xlabel, unit, xs, series):
        """A line for each name, through points of x and a figure; xs, all that
        there may be, double."""
        series = {name: points for name, points in series.items() if points}
        if not series:
            return
        top = max(figure["max"] for points in series.values() for _, figure in points)
        commands = [
            f"set title {_quote(title)}", f"set xlabel {_quote(xlabel)}",
            f"set ylabel {_quote(unit)}", "set logscale x 2",
            f"set xrange [{xs[0] * 0.85}:{xs[-1] * 1.18}]", f"set yrange [0:{_nice(top * 1.02)}]",
            "set xtics (" + ", ".join(f'"{x}" {x}' for x in xs) + ")", "set ytics autofreq",
            "set grid xtics ytics",
        ]
        plots = []
        for number, (name, points) in enumerate(series.items()):
            data = [f"{x} {figure['median']}" for x, figure in points]
            ranges = [f"{x} {figure['median']} {figure['min']} {figure['max']}"
                      for x, figure in points if figure["runs"] > 1]
            block, ranges = self._blocks(commands, number, data, ranges)
            dashes, points = f"dt {number + 1}", f"pt {POINTS[number % len(POINTS)]}"
            plots += [f'{block} with lines {dashes} lw 1.5 lc "black" notitle',
                      f'{block} with points {points} lw 1.5 lc "black" notitle',
                      f'NaN with linespoints {dashes} {points} lw 1.5 lc "black" '
                      f'title {_quote(name)}']
            if ranges:
                plots.append(f'{ranges} with yerrorbars pt 0 lc "black" notitle')
        commands += ["plot " + ", \\\n     ".join(plots), "unset ylabel", "set xtics autofreq"]
        self.panels.append((LINES + KEY, KEY, commands))

    # -- drawing ------------------------------------------------------------------

    def _script(self):
        height = HEAD + sum(panel[0] for panel in self.panels)
        lines = [
            "set multiplot", "set tics nomirror out", "set border 3", "set termoption noenhanced",
            f"set label 1 {_quote(self.title)} at screen 0.5, screen "
            f"{1 - 22 / height:.5f} center font \",15\"",
            f"set label 2 {_quote(self.caption)} at screen 0.5, screen "
            f"{1 - 48 / height:.5f} center",
            f"set lmargin at screen {LEFT / WIDTH:.5f}",
            f"set rmargin at screen {1 - RIGHT / WIDTH:.5f}",
        ]
        top = HEAD
        for panel, key, commands in self.panels:
            lines += [f"set tmargin at screen {1 - (top + ABOVE + key) / height:.5f}",
                      f"set bmargin at screen {1 - (top + panel - BELOW) / height:.5f}",
                      f"set title offset 0,{key / 22:.1f}",
                      f"set key at screen {1 - RIGHT / WIDTH:.5f}, screen "
                      f"{1 - (top + ABOVE + 2) / height:.5f} right top horizontal"]
            lines += commands + ["unset label"]
            top += panel
        return height, lines + ["unset multiplot"]

    def write(self, prefix):
        """Make the files; returns why not, None if they are there."""
        if not self.panels:
            return "there is nothing to be shown"
        height, lines = self._script()
        for ending, terminal in TERMINALS:
            script = "\n".join(
                ["set terminal " + terminal.format(width=WIDTH, height=math.ceil(height)),
                 f"set output {_quote(os.path.abspath(prefix + '.' + ending))}"] + lines) + "\n"
            try:
                done = subprocess.run(["gnuplot"], input=script.encode(), check=False,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            except OSError:
                return "gnuplot is not installed"
            if done.returncode != 0 or done.stdout:
                return "gnuplot: " + done.stdout.decode(errors="replace")[-1000:]
        return None
