"""Lines over two logarithmic axes, as an SVG: enough to see what is linear, without a library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 760, 440, 70, 210, 40, 50
_COLOURS = ("#1f5fa8", "#b3541e", "#2f7d4f", "#7a3b8f", "#666666")


@dataclass(frozen=True)
class Line:
    """Values over xs, all above 0."""

    name: str
    xs: Sequence[float]
    values: Sequence[float]


def plot(title: str, x_name: str, lines: Sequence[Line]) -> str:
    """The picture; a line that is straight and rises as the grid does is proportional to x."""
    xs = sorted({x for line in lines for x in line.xs})
    low = math.floor(math.log10(min(value for line in lines for value in line.values)))
    high = math.ceil(math.log10(max(value for line in lines for value in line.values)))
    span = math.log10(xs[-1] / xs[0]) or 1.0

    def across(x: float) -> float:
        return _LEFT + math.log10(x / xs[0]) / span * (_WIDTH - _LEFT - _RIGHT)

    def up(value: float) -> float:
        return _HEIGHT - _BOTTOM - (math.log10(value) - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif"'
        f' font-size="12"><rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_LEFT}" y="22" font-size="14">{escape(title)}</text>',
    ]
    for power in range(low, high + 1):
        y = up(10.0**power)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:,.10g}</text>')
    for x in xs:
        parts.append(f'<path d="M{across(x):.1f} {_TOP}V{_HEIGHT - _BOTTOM}" stroke="#ddd"/>')
        parts.append(
            f'<text x="{across(x):.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{x:,.10g}</text>'
        )
    parts.append(f'<text x="{_LEFT}" y="{_HEIGHT - 10}">{escape(x_name)}</text>')
    for line, colour in zip(lines, _COLOURS, strict=False):
        places = [(across(x), up(value)) for x, value in zip(line.xs, line.values, strict=True)]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        x, y = places[-1]
        parts.append(f'<text x="{x + 8:.1f}" y="{y + 4:.1f}" fill="{colour}">{escape(line.name)}</text>')
    return "\n".join([*parts, "</svg>", ""])
