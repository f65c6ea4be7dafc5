# picture.py
#   Pictures, by gnuplot, as SVG and PNG.
#
# Colours say who audits.  They are of Okabe and Ito's palette, which people who
# are colour-blind can tell apart, and they differ in brightness, too.  Nothing is
# said by colour alone: each bar and line has a name, and what others have
# published is hatched.
#
# Copyright (c) 2026, pg_audit_queue contributors

import math
import os
import subprocess
import textwrap
from collections import namedtuple

# Pixels
WIDTH = 1000

# The scale of a picture that can be read in half its size
LARGE = 1.5

# What follows is in pixels of a picture that is not magnified (see Plot).
# Fonts, and how wide a character is, as part of the font's size: rather too wide,
# for who looks at an SVG may have another font
FAMILY = "sans-serif"
FONT = 13
TITLE = 17
PANEL_TITLE = 14
CHARACTER = 0.6

# Between the edge and everything; between a name or a label and the plot
EDGE = 16
GAP = 12

# Heights: of a line of text, as part of the font's size; of a bar; of what is below
# a plot, the scale and its unit; of the space between panels; of a legend; of a plot
# with lines
LINE = 1.5
BAR = 22
BELOW = 56
BETWEEN = 24
KEY = 24
LINES = 250

# A sample of a colour in a legend
SAMPLE = 20

# Who audits: words for the legend, colour
Who = namedtuple("Who", "words colour")
NONE = Who("no audit", "#999999")
OURS = Who("pg_audit_queue", "#0072b2")
OTHERS = Who("others", "#e69f00")
PUBLISHED = Who("published, another machine", "#d55e00")
EVERYBODY = (NONE, OURS, OTHERS, PUBLISHED)

# In the legend of bars of all colours
SERIES = "#444444"

# Of bars that belong together, and of what others have published
FILLS = ("solid 1", "solid 0.5", "solid 0.15")
HATCHED = "pattern 4"

POINTS = (7, 5, 9, 6, 4, 8)

# A line's points, of those of the line before
APART = 1.03

TERMINAL = 'set terminal {0} size {1},{2} font "{3},{4}" fontscale {5} linewidth {6} ' \
           'background "white"'

# Ending of the file, gnuplot's name of it, size of fonts: a point of text is 4/3 of a pixel.
KINDS = (("svg", "svg", 1), ("png", "pngcairo", 0.75))

SETUP = ("set multiplot", "set tics nomirror out scale 0.5", "set border 3", 'set format "%g"',
         "set termoption noenhanced")

# A bar: its name, figure, layout of its label, verdict; who it is of, None: whoever
# has the configuration of that name
Bar = namedtuple("Bar", "name figure layout verdict who", defaults=("{:.3f}", None, None))

# A line of text among bars, about those that follow
Heading = namedtuple("Heading", "text")


def bar(row, figure, layout="{:.3f}"):
    """A bar for a row of medians."""
    return Bar(row["configuration"], figure, layout, row["verdict"])


def ours(result):
    """Names of the configurations in which pg_audit_queue is loaded"""
    return {name for name, what in result["configurations"].items()
            if "pg_audit_queue" in what.get("settings", {})
            .get("shared_preload_libraries", "").split(",")}


def _quote(text):
    return '"' + str(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _nice(value):
    """The end of an axis that has to reach a value."""
    if value <= 0:
        return 1
    step = 10 ** math.floor(math.log10(value))
    return next(step * factor for factor in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
                if step * factor >= value)


def _width(text, font=FONT):
    return len(text) * font * CHARACTER


def _fill_of(who):
    return HATCHED if who == PUBLISHED else FILLS[0]


def _painted(colour, fill):
    return f'fillcolor rgb "{colour}" fs {fill} border lc rgb "{colour}"'


def _font(font, bold=False):
    return f'left font "{FAMILY}{":Bold" if bold else ""},{font}"'


# One of the bars of a row: figure, label, who it is of, fill
_Part = namedtuple("_Part", "figure text who fill")


def _make_bold(path):
    """Where gnuplot has left a font's weight in the name of the family"""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    with open(path, "w", encoding="utf-8") as file:
        file.write(text.replace(f'font-family="{FAMILY}:Bold"',
                                f'font-family="{FAMILY}" font-weight="bold"'))


class Plot:
    """A picture of panels, one below the other.

    title, captions  what is above them, the captions a line each
    names_of_ours    names of the configurations of pg_audit_queue
    scale            how large text and bars are in a picture of the same width
    """

    def __init__(self, title, captions, names_of_ours, scale=1):
        self.title = title
        self.captions = captions
        self.ours = names_of_ours
        self.scale = scale
        self.width = WIDTH / scale
        self.shown = set()      # who is in the picture
        self.names = [""]       # of bars, and their labels
        self.labels = [""]
        self.lines_drawn = {}   # their numbers, the same in all panels
        self.panels = []

    def who(self, name):
        """Who audits in a configuration"""
        return NONE if name == "none" else OURS if name in self.ours else OTHERS

    # -- panels -------------------------------------------------------------------
    #
    # A panel has its title, its legend as pairs of words and a fill (None: the plot
    # has one), the height of its plot, what its scale is in, and commands for the plot.

    def bars(self, title, unit, items):
        """A bar for each Bar that has a figure, and text for each Heading."""
        rows = []
        for each in items:
            if isinstance(each, Heading):
                rows.append((each, []))
            elif each.figure is not None:
                who = each.who or self.who(each.name)
                text = each.layout.format(each.figure["median"])
                if each.verdict not in ("ok", None):
                    text += "  WRONG"
                rows.append((each.name, [_Part(each.figure, text, who, _fill_of(who))]))
        self._bars(title, unit, rows, [])

    def grouped(self, title, unit, rows, series):
        """For each row a bar of each series: key, name."""
        keys = [key for key, _ in series]
        self._bars(title, unit, [
            (row["configuration"],
             [_Part(row[key], f"{row[key]['median']:.4g}", self.who(row["configuration"]), fill)
              for key, fill in zip(keys, FILLS)])
            for row in rows if all(key in row for key in keys)],
            [(name, fill) for (_, name), fill in zip(series, FILLS)])

    def _bars(self, title, unit, rows, legend):
        """rows: name and parts, or a Heading and none"""
        # From the top to the bottom, in a space of 1 for each row: middle and half width
        placed = [(part, -i + 0.4 - 0.8 / len(parts) * (place + 0.5), 0.4 / len(parts))
                  for i, (_, parts) in enumerate(rows) for place, part in enumerate(parts)]
        if not placed:
            return
        names = [(name, -i) for i, (name, _) in enumerate(rows) if not isinstance(name, Heading)]
        self.names += [name for name, _ in names]
        self.labels += [part.text for part, _, _ in placed]
        self.shown.update(part.who for part, _, _ in placed)
        low = min(part.figure["min"] for part, _, _ in placed)
        commands = [
            f"set xrange [{-_nice(-low) if low < 0 else 0}:"
            f"{_nice(max(part.figure['max'] for part, _, _ in placed) * 1.02)}]",
            "set ytics scale 0 (" + ", ".join(f"{_quote(name)} {y}" for name, y in names) + ")",
            f"set yrange [{-len(rows) + 0.4}:0.6]", "set grid xtics", "unset logscale",
        ]
        for i, (name, _) in enumerate(rows):
            if isinstance(name, Heading):
                # in a gap between the bars, from edge to edge
                commands += [
                    f"set object rectangle from screen 0, first {-i - 0.42} to "
                    f"screen 1, first {-i + 0.42} front fillcolor \"white\" fs solid 1 noborder",
                    f"set label {_quote(name.text)} at screen {EDGE / self.width:.5f}, "
                    f"first {-i} {_font(FONT, True)} front"]
        plots = []
        for number, (who, fill) in enumerate(dict.fromkeys((part.who, part.fill)
                                                           for part, _, _ in placed)):
            block = self._block(commands, f"bars{number}", [
                f"{part.figure['median']} {y} {y - half} {y + half}"
                for part, y, half in placed if (part.who, part.fill) == (who, fill)])
            plots.append(f"{block} using ($1/2):2:(0):1:3:4 with boxxyerror "
                         + _painted(who.colour, fill) + " notitle")
        ranges = [f"{part.figure['median']} {y} {part.figure['min']} {part.figure['max']}"
                  for part, y, _ in placed if part.figure["min"] < part.figure["max"]]
        if ranges:
            # Black with white edges can be seen on any colour.
            block = self._block(commands, "ranges", ranges)
            plots += [f'{block} using 1:2:3:4 with xerrorbars pt 0 lw {width} lc "{colour}" notitle'
                      for width, colour in ((4, "white"), (1.5, "black"))]
        block = self._block(commands, "labels", [
            f"{max(part.figure['max'], 0)} {y} {_quote(part.text)}" for part, y, _ in placed])
        plots.append(f"{block} using 1:2:3 with labels left offset 0.8,0 notitle")
        commands.append("plot " + ", \\\n     ".join(plots))
        self.panels.append((title, legend,
                            BAR * sum(0.3 + 0.75 * max(1, len(parts)) for _, parts in rows),
                            unit, commands))

    def _block(self, commands, name, lines):
        """Put data into the script; returns their name."""
        name = f"$panel{len(self.panels)}_{name}"
        commands += [f"{name} << EOD"] + lines + ["EOD"]
        return name

    def lines(self, title, xlabel, unit, xs, series):
        """A line for each name, through points of x and a figure; xs, all that
        there may be, double."""
        series = {name: points for name, points in series.items() if points}
        if not series:
            return
        top = _nice(1.02 * max(figure["max"] for points in series.values()
                               for _, figure in points))
        self.names.append(f"{top:g}    ")
        commands = [
            f"set ylabel {_quote(unit)}", "set logscale x 2",
            f"set xrange [{xs[0] * 0.85}:{xs[-1] * 1.18}]", f"set yrange [0:{top}]",
            "set xtics (" + ", ".join(f'"{x}" {x}' for x in xs) + ")", "set ytics autofreq",
            "set grid xtics ytics",
            f"set key at graph 1, graph {1 + KEY / LINES:.3f} right top horizontal",
        ]
        plots = []
        for name, points in series.items():
            number = self.lines_drawn.setdefault(name, len(self.lines_drawn))
            # a little to the right of the line before, so that ranges are seen
            points = [(x * APART ** number, figure) for x, figure in points]
            who = self.who(name)
            self.shown.add(who)
            colour = f'lc rgb "{who.colour}"'
            dashes, point = f"dt {number + 1}", f"pt {POINTS[number % len(POINTS)]}"
            ranges = [f"{x} {figure['median']} {figure['min']} {figure['max']}"
                      for x, figure in points if figure["min"] < figure["max"]]
            if ranges:
                block = self._block(commands, f"ranges{number}", ranges)
                plots.append(f"{block} with yerrorbars pt 0 {colour} notitle")
            block = self._block(commands, f"line{number}",
                                [f"{x} {figure['median']}" for x, figure in points])
            plots.append(f"{block} with linespoints {dashes} {point} lw 2 {colour} "
                         f"title {_quote(name)}")
        commands += ["plot " + ", \\\n     ".join(plots), "unset ylabel", "set xtics autofreq"]
        self.panels.append((title, None, LINES, xlabel, commands))

    # -- drawing ------------------------------------------------------------------

    def _script(self):
        """The height, and commands for everything."""
        height = self._drawn(1).top     # places are wrong
        return height, self._drawn(height).commands

    def _drawn(self, height):
        left = EDGE + max(_width(name) for name in self.names) + GAP
        right = EDGE + max(_width(text) for text in self.labels) + GAP
        drawing = _Drawing(self.width, height)
        drawing.text(self.title, TITLE, bold=True)
        for caption in self.captions:
            drawing.text(caption)
        drawing.legend([(who.words, who.colour, _fill_of(who))
                        for who in EVERYBODY if who in self.shown])
        for title, legend, plot_height, unit, commands in self.panels:
            drawing.top += BETWEEN
            drawing.text(title, PANEL_TITLE, bold=True)
            if legend is None:
                drawing.top += KEY
            else:
                drawing.legend([(name, SERIES, fill) for name, fill in legend])
            drawing.plot(left, right, plot_height, unit, commands)
        return drawing

    def write(self, prefix):
        """Make the files; returns why not, None if they are there."""
        if not self.panels:
            return "there is nothing to be shown"
        height, commands = self._script()
        for ending, kind, font in KINDS:
            script = [TERMINAL.format(kind, WIDTH, math.ceil(height * self.scale), FAMILY, FONT,
                                      font * self.scale, self.scale),
                      f"set output {_quote(os.path.abspath(prefix + '.' + ending))}"]
            script = "\n".join(script + list(SETUP) + commands + ["unset multiplot"]) + "\n"
            try:
                done = subprocess.run(["gnuplot"], input=script.encode(), check=False,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            except OSError:
                return "gnuplot is not installed"
            if done.returncode != 0 or done.stdout:
                return "gnuplot: " + done.stdout.decode(errors="replace")[-1000:]
        _make_bold(prefix + ".svg")
        return None


class _Drawing:
    """Commands for everything, from the top of a picture to its bottom."""

    def __init__(self, width, height):
        self.width = width
        self.height = height
        self.top = EDGE / 2
        self.commands = []

    def _x(self, x):
        return f"screen {x / self.width:.5f}"

    def _y(self, y):
        return f"screen {1 - y / self.height:.5f}"

    def text(self, text, font=FONT, bold=False):
        """Text from edge to edge, in as many lines as it takes."""
        for line in textwrap.wrap(text, int((self.width - 2 * EDGE) / _width("n", font))):
            self.commands.append(
                f"set label {_quote(line)} at {self._x(EDGE)}, "
                f"{self._y(self.top + font * LINE / 2)} " + _font(font, bold))
            self.top += font * LINE

    def legend(self, entries):
        """Words, colour and fill of each, in as many lines as it takes."""
        x = EDGE
        for words, colour, fill in entries:
            if x > EDGE and x + SAMPLE + _width(words) > self.width - EDGE:
                x = EDGE
                self.top += KEY
            self.commands += [
                f"set object rectangle from {self._x(x)}, {self._y(self.top + KEY - 5)} "
                f"to {self._x(x + SAMPLE)}, {self._y(self.top + 7)} " + _painted(colour, fill),
                f"set label {_quote(words)} at {self._x(x + SAMPLE + 6)}, "
                f"{self._y(self.top + KEY / 2 + 1)} " + _font(FONT)]
            x += SAMPLE + _width(words) + 2 * GAP
        if entries:
            self.top += KEY

    def plot(self, left, right, height, unit, commands):
        """What is to the right of the left margin; names are in that."""
        middle = (left + self.width - right) / 2
        self.commands += [f"set label {_quote(unit)} at {self._x(middle)}, "
                          f"{self._y(self.top + 6 + height + BELOW - FONT)} center",
                          f"set lmargin at {self._x(left)}",
                          f"set rmargin at {self._x(self.width - right)}",
                          f"set tmargin at {self._y(self.top + 6)}",
                          f"set bmargin at {self._y(self.top + 6 + height)}"]
        # What is not unset is drawn again with each panel.
        self.commands += commands + ["unset label", "unset object", "unset arrow"]
        self.top += 6 + height + BELOW
