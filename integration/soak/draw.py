"""The curves of a run, as a drawing without anything but lines and letters."""

import html

WIDTH, HEIGHT = 860, 190  # of a panel
LEFT, RIGHT, TOP, BOTTOM = 64, 190, 34, 26
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#17becf", "#7f7f7f")


class Panel:
    """lines: {label: [(minutes, value)]}; all of them have one unit, and begin at 0."""

    def __init__(self, title, lines):
        self.title, self.lines = title, {k: v for k, v in lines.items() if v}

    @property
    def top(self):
        return round_up(max((v for line in self.lines.values() for _, v in line), default=1))


def round_up(value):
    """The next of 1, 2, 5, 10, 20 ..."""
    if value <= 0:
        return 1
    power = 1.0
    while power >= value:
        power /= 10
    while power * 10 < value:
        power *= 10
    return next(power * f for f in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if power * f >= value)


def text(x, y, words, anchor="start", colour="#333", size=11):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" '
            f'font-size="{size}">{html.escape(words)}</text>')


def draw_panel(panel, at, minutes):
    right, bottom = WIDTH - RIGHT, at + HEIGHT - BOTTOM
    top = panel.top
    scale = (bottom - at - TOP) / top
    made = [text(LEFT, at + 20, panel.title, colour="#000", size=13)]
    for part in (0, 0.5, 1):
        y = bottom - part * top * scale
        made += [f'<line x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#ddd"/>',
                 text(LEFT - 6, y + 4, f"{part * top:g}", "end")]
    for part in (0, 0.25, 0.5, 0.75, 1):
        made.append(text(LEFT + (right - LEFT) * part, bottom + 16, f"{minutes * part:g} min",
                         "middle"))
    for number, (label, points) in enumerate(panel.lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{LEFT + (right - LEFT) * t / minutes:.1f},{bottom - v * scale:.1f}"
                        for t, v in points)
        made += [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.4"/>',
                 text(right + 10, at + TOP + 8 + 15 * number, label, colour=colour)]
    return made


def draw(panels, minutes):
    height = HEIGHT * len(panels)
    made = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            'font-family="sans-serif">', f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>']
    for number, panel in enumerate(panels):
        made += draw_panel(panel, number * HEIGHT, minutes)
    return "\n".join([*made, "</svg>"]) + "\n"
