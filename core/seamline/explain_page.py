"""The template of :mod:`seamline.explain_html`: Jinja's language, styles included."""

from __future__ import annotations

__all__ = ["PAGE"]

_STYLE = """
:root { color-scheme: light dark; --fg: #1c1e21; --bg: #fff; --dim: #5b6066;
  --line: #d8dbdf; --head: #f2f4f6; --seam: #b3261e; --sat: 55%; --light: 62%; }
@media (prefers-color-scheme: dark) {
  :root { --fg: #e4e6e9; --bg: #16181b; --dim: #9aa1a9; --line: #363a40;
    --head: #22262b; --seam: #ff8a80; --sat: 45%; --light: 48%; } }
body { color: var(--fg); background: var(--bg); font: 15px/1.45 system-ui, sans-serif;
  margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; overflow-wrap: anywhere; } h2 { font-size: 1.15rem; margin-top: 2rem; }
code, td.id { font-family: ui-monospace, monospace; font-size: .88em; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; margin: .6rem 0; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .5rem; text-align: left;
  vertical-align: top; }
th { background: var(--head); font-weight: 600; }
td.n, th.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
tr:target td { background: var(--head); }
details { margin: .4rem 0; } summary { cursor: pointer; }
.dim { color: var(--dim); } .wide { overflow-x: auto; }
.nested { border-left: 3px solid var(--line); padding-left: 1rem; }
svg { width: 100%; height: 3.4rem; display: block; }
.mark { stroke: var(--seam); stroke-width: 1.5; vector-effect: non-scaling-stroke; }
.key { display: inline-block; width: .8em; height: .8em; border-radius: 2px; }
.core { fill: var(--dim); background: var(--dim); }
""" + "".join(
    f".p{i} {{ fill: hsl({hue} var(--sat) var(--light)); "
    f"background: hsl({hue} var(--sat) var(--light)); }}\n"
    for i, hue in enumerate((210, 35, 145, 285, 180, 330, 60, 0))
)

_HEAD = (
    """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{{ data.model }}: explained by seamline</title>
<style>{% raw %}"""
    + _STYLE
    + """{% endraw %}</style>
</head>
"""
)

_MACROS = """
{% macro names(values, what) %}
{% if values | length > 3 %}
<details><summary>{{ values | length }} {{ what }}</summary>
{% for name in values %}<code>{{ name }}</code>{{ ", " if not loop.last }}{% endfor %}</details>
{% else %}
{% for name in values %}<code>{{ name }}</code>{{ ", " if not loop.last }}{% endfor %}
{% endif %}
{% endmacro %}

{% macro colour(provider) %}{{ "p%d" % colours[provider] if provider in colours else "core" }}{% endmacro %}

{% macro picture(plan, path) %}
{% set drawn = band(plan) %}
<svg viewBox="0 0 {{ drawn.width }} 40" preserveAspectRatio="none" role="img"
 aria-label="Segments in order, coloured by provider, with the seams between them">
{% for piece in drawn.pieces %}
<a href="#{{ path }}s{{ loop.index }}"><rect class="{{ colour(piece.segment.provider) }}" x="{{ piece.x }}" y="6" width="{{ piece.width }}" height="28"><title>{{ piece.segment.id }} ({{ piece.segment.provider }}, {{ piece.segment.nodes | length }} nodes)</title></rect></a>
{% endfor %}
{% for mark in drawn.marks %}
<line class="mark" x1="{{ mark.x }}" x2="{{ mark.x }}" y1="0" y2="40"><title>{% for seam in mark.seams %}{{ seam.cause }} {{ seam.id }}
{% endfor %}</title></line>
{% endfor %}
</svg>
{% endmacro %}

{% macro segments(plan, path) %}
<h3>Segments</h3>
<div class="wide"><table><tr><th>id</th><th>provider</th><th class="n">nodes</th><th>reads</th><th>gives</th><th>remarks</th><th class="n">us</th></tr>
{% for s in plan.segments %}
<tr id="{{ path }}s{{ loop.index }}"><td class="id">{{ s.id }}</td>
<td><span class="key {{ colour(s.provider) }}"></span> {{ s.provider }} <span class="dim">{{ s.device }}</span></td>
<td class="n">{{ s.nodes | length }}</td><td>{{ names(s.inputs, "values") }}</td><td>{{ names(s.outputs, "values") }}</td>
<td>{{ "sizes found by running. " if s.sizes_at_run }}{{ "not capturable: " ~ s.not_capturable if s.not_capturable }}
{{ names(s.nodes, "nodes") }}</td><td class="n">{{ s.us | us }}</td></tr>
{% endfor %}
{% for step in plan.host_steps %}
<tr><td class="id">{{ step.id }}</td><td><span class="key core"></span> host</td><td class="n">1</td><td></td><td></td>
<td><code>{{ step.node }}</code> decides on the host</td><td class="n">{{ step.us | us }}</td></tr>
{% endfor %}
</table></div>
{% endmacro %}

{% macro seams(plan) %}
{% if plan.seams %}
<h3>Seams</h3>
<div class="wide"><table><tr><th>id</th><th>cause</th><th>after</th><th>before</th><th>values</th><th class="n">bytes</th><th class="n">copied</th><th class="n">us</th><th>why</th></tr>
{% for s in plan.seams %}
<tr><td class="id">{{ s.id }}</td><td>{{ s.cause }}</td><td><code>{{ s.after }}</code></td><td><code>{{ s.before or "the rest" }}</code></td>
<td>{{ names(s["values"], "values") }}</td><td class="n">{{ s.nbytes | bytes }}</td>
<td class="n">{{ s.copied_nbytes | bytes }}</td><td class="n">{{ s.us | us }}</td><td>{{ s.why }}</td></tr>
{% endfor %}
</table></div>
{% endif %}
{% if plan.excursions %}
<h3>Excursions</h3>
<div class="wide"><table><tr><th>id</th><th>form</th><th class="n">out</th><th class="n">in</th><th class="n">predicted us</th><th class="n">us</th><th class="n">host's us</th><th>why</th></tr>
{% for e in plan.excursions %}
<tr><td class="id">{{ e.id }}</td><td>{{ e.form }}</td><td class="n">{{ e.out_nbytes | bytes }}</td><td class="n">{{ e.in_nbytes | bytes }}</td>
<td class="n">{{ e.predicted_us | us }}</td><td class="n">{{ e.us | us }}</td><td class="n">{{ e.host_us | us }}</td>
<td>{{ e.reason }} <span class="dim">{{ e.source }}</span>{% for form, why in e.refused.items() %}<br>no {{ form }}: {{ why }}{% endfor %}</td></tr>
{% endfor %}
</table></div>
{% endif %}
{% if plan.edges %}
<h3>Copies inside recordings</h3>
<div class="wide"><table><tr><th>id</th><th>value</th><th class="n">bytes</th><th>in the recording of</th></tr>
{% for e in plan.edges %}
<tr><td class="id">{{ e.id }}</td><td><code>{{ e.value }}</code></td><td class="n">{{ e.nbytes | bytes }}</td><td class="id">{{ e.unit }}</td></tr>
{% endfor %}
</table></div>
{% endif %}
{% if plan.transfers %}
<h3>Transfers</h3>
<div class="wide"><table><tr><th>id</th><th>value</th><th>from</th><th>to</th><th class="n">bytes</th><th class="n">us</th></tr>
{% for t in plan.transfers %}
<tr><td class="id">{{ t.id }}</td><td><code>{{ t.value }}</code></td><td>{{ t.source }}</td><td>{{ t.target }}</td><td class="n">{{ t.nbytes | bytes }}</td><td class="n">{{ t.us | us }}</td></tr>
{% endfor %}
</table></div>
{% endif %}
{% endmacro %}

{% macro nodes(plan) %}
<details><summary>Nodes: who runs each, and why ({{ plan.nodes | length }})</summary>
<div class="wide"><table><tr><th>node</th><th>operator</th><th>provider</th><th>variant</th><th>reason</th><th>outputs</th><th>refused by</th></tr>
{% for name, node in plan.nodes.items() %}
<tr><td class="id">{{ name }}</td><td>{{ node.op }} <span class="dim">{{ node.since_version }}</span></td>
<td><span class="key {{ colour(node.provider) }}"></span> {{ node.provider }}</td><td>{{ node.variant }}</td>
<td>{{ node.reason }}{{ "; " ~ node.because if node.because }}{{ "; not capturable: " ~ node.not_capturable if node.not_capturable }}</td>
<td>{% for output, kind in node.outputs.items() %}<code>{{ output }}</code> {{ kind }}<br>{% endfor %}</td>
<td>{% for provider, why in node.refusals.items() %}<details><summary>{{ provider }}</summary>{{ why }}</details>{% endfor %}</td></tr>
{% endfor %}
</table></div></details>
{% for title, them in (("Resolved from sizes alone", plan.resolved), ("Unused", plan.unused)) if them %}
<details><summary>{{ title }} ({{ them | length }})</summary>
{% for name in them %}<code>{{ name }}</code>{{ ", " if not loop.last }}{% endfor %}</details>
{% endfor %}
{% endmacro %}

{% macro show(plan, path) %}
<p>{{ summary(plan) }}.{{ " Not every segment that could be joined was." if not plan.all_joined }}</p>
{{ picture(plan, path) }}
{% if plan.memory %}
<table><tr><th>memory on</th><th class="n">arena</th><th class="n">alive at most</th><th class="n">kept by kernels</th></tr>
{% for device, memory in plan.memory.items() %}
<tr><td>{{ device }}</td><td class="n">{{ memory.arena_nbytes | bytes }}</td><td class="n">{{ memory.peak_nbytes | bytes }}</td><td class="n">{{ memory.resident_nbytes | bytes }}</td></tr>
{% endfor %}
</table>
{% endif %}
{{ segments(plan, path) }}
{{ seams(plan) }}
{{ nodes(plan) }}
{% for name, body in plan.bodies.items() %}
<h3>Body <code>{{ name }}</code></h3>
<div class="nested">{{ show(body, path ~ "b%d-" % loop.index) }}</div>
{% endfor %}
{% if plan.rest %}
<h3>Then, once sizes are known</h3>
<div class="nested">
{% if plan.rest.planned %}
{{ show(plan.rest, path ~ "r-") }}
{% else %}
<div>{{ plan.rest.nodes | length }} nodes, planned once these are sized: {{ names(plan.rest.waits_for, "values") }}</div>
<details><summary>Nodes that wait</summary>{% for name in plan.rest.nodes %}<code>{{ name }}</code>{{ ", " if not loop.last }}{% endfor %}</details>
{% endif %}
</div>
{% endif %}
{% endmacro %}
"""

_BODY = """<body>
<h1>{{ data.model }}</h1>
<table><tr><th>provider</th><th>device</th><th>options</th><th class="n">made of constants</th></tr>
{% for p in data.providers %}
<tr><td><span class="key {{ colour(p.name) }}"></span> {{ p.name }}</td><td>{{ p.device }}</td>
<td>{% for name, value in p.options.items() %}{{ name }}={{ value }} {% endfor %}</td><td class="n">{{ p.kept_nbytes | bytes }}</td></tr>
{% endfor %}
</table>
<p>Signature: {% for name, kind in data.signature.items() %}<code>{{ name }}: {{ kind }}</code> {% else %}no inputs{% endfor %}.
Opsets: {% for domain, version in data.opsets.items() %}{{ domain }} {{ version }}{{ ", " if not loop.last }}{% endfor %}.
Constants: {{ data.constants_nbytes | bytes }}.</p>
{% if data.optimized.rewrites or data.optimized.left %}
<details><summary>Rewritten: {{ data.optimized.rewrites | length }} places ({{ data.optimized.level }})</summary>
<ul>{% for one in data.optimized.rewrites %}<li><code>{{ one.id }}</code>: {{ one.nodes | join(", ") }} {% for name, op in one.made.items() %}→ <code>{{ op }}</code> {% endfor %}({{ one.reason }})</li>{% endfor %}
{% for one in data.optimized.left %}<li><code>{{ one.id }}</code> left: {{ one.why }}</li>{% endfor %}</ul></details>
{% endif %}
{% if data.folded.nodes or data.folded.left %}
<details><summary>Folded once at open: {{ data.folded.nodes | length }} nodes, {{ data.folded.nbytes | bytes }} kept</summary>
{{ data.folded.left or "" }} {% for name in data.folded.nodes %}<code>{{ name }}</code>{{ ", " if not loop.last }}{% endfor %}</details>
{% endif %}
{% if data.notes %}
<h2>Notes</h2>
<ul>{% for note in data.notes %}<li>{{ note }}</li>{% endfor %}</ul>
{% endif %}
{% if data.advice %}
<h2>What would help most</h2>
<ul>{% for one in data.advice %}<li>{{ one.text }}</li>{% endfor %}</ul>
{% endif %}
<h2>Plan</h2>
{{ show(data.plan, "") }}
</body>
</html>
"""

PAGE = (
    _HEAD + _MACROS + _BODY
)  #: of ``data`` and ``colours``, with ``band``, ``summary``
