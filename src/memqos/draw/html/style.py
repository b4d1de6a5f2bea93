"""How the page of an audit looks: one style sheet, light and dark, wide and narrow."""

from typing import Final

_LIGHT: Final = {
    "paper": "#f5f7f9",
    "card": "#ffffff",
    "ink": "#1f2328",
    "dim": "#59636e",
    "edge": "#dde3e9",
    "track": "#e9edf1",
    "guaranteed": "#0b5cad",
    "burstable": "#5ba3e6",
    "besteffort": "#a8b3bf",
    "requested": "#5ba3e6",
    "limits": "#b7a3e0",
    "min": "#0b5cad",
    "low": "#84b9ec",
    "usage": "#d9920f",
    "error": "#b3261e",
    "warning": "#9a6700",
    "info": "#0b5cad",
    "over": "#b3261e",
}
_DARK: Final = {
    "paper": "#0d1117",
    "card": "#161b22",
    "ink": "#e6edf3",
    "dim": "#9aa2ab",
    "edge": "#2b323b",
    "track": "#2b323b",
    "guaranteed": "#1f6fd0",
    "burstable": "#6aaef0",
    "besteffort": "#737c86",
    "requested": "#4c8fd3",
    "limits": "#8f79c4",
    "min": "#1f6fd0",
    "low": "#6aaef0",
    "usage": "#e0a030",
    "error": "#ff8078",
    "warning": "#e0a030",
    "info": "#6aaef0",
    "over": "#ff8078",
}


def _variables(colours: dict[str, str]) -> str:
    return "".join(f"--{name}:{colour};" for name, colour in colours.items())


def _colour_classes() -> str:
    return "".join(
        f".fill-{name}{{fill:var(--{name})}}.stroke-{name}{{stroke:var(--{name})}}"
        f".back-{name}{{background:var(--{name})}}"
        for name in _LIGHT
    )


PAGE_STYLE: Final = (
    f":root{{{_variables(_LIGHT)}}}"
    f"@media (prefers-color-scheme:dark){{:root{{{_variables(_DARK)}}}}}"
    f"{_colour_classes()}"
    """
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);line-height:1.45;
font:15px/1.45 system-ui,-apple-system,"Segoe UI","Noto Sans",Arial,sans-serif}
main{max-width:1160px;margin:0 auto;padding:24px 16px 40px}
h1{font-size:28px;margin:0 0 4px;letter-spacing:-.01em}
h2{font-size:19px;margin:32px 0 10px}
h3{font-size:15px;margin:0 0 6px;overflow-wrap:anywhere}
p{margin:4px 0}
code{font:13px/1.4 ui-monospace,"SF Mono",Menlo,Consolas,monospace;overflow-wrap:anywhere}
.dim,.note,.sources{color:var(--dim);font-size:13.5px}
.sources,.note,.killed{overflow-wrap:anywhere}
p.killed{color:var(--error);font-weight:600}
.line{display:block;white-space:pre-wrap}
.terms{font-weight:600}
.card{background:var(--card);border:1px solid var(--edge);border-radius:10px;padding:16px;
min-width:0}
.numbers+.card,.finding+.card,main>.card+.card{margin-top:14px}
.card>h2{margin:0 0 10px;font-size:16px}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,330px),1fr));gap:14px;
margin-top:14px}
.charts{grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr))}
.nodes{grid-template-columns:repeat(auto-fill,minmax(min(100%,330px),1fr))}
.numbers{display:grid;grid-template-columns:repeat(auto-fit,minmax(104px,1fr));gap:10px;
margin-top:18px}
.number{background:var(--card);border:1px solid var(--edge);border-radius:10px;padding:12px 14px;
display:flex;flex-direction:column;border-top:4px solid var(--edge)}
.number b{font-size:25px;line-height:1.15;font-variant-numeric:tabular-nums}
.number span{color:var(--dim);font-size:13px}
.number.error{border-top-color:var(--error)}.number.error b{color:var(--error)}
.number.warning{border-top-color:var(--usage)}.number.warning b{color:var(--warning)}
.number.info{border-top-color:var(--info)}
.number.none b{color:var(--dim)}.number.none{border-top-color:var(--edge)}
.beside{display:flex;gap:22px;min-height:190px;align-items:center;flex-wrap:wrap}
.ring{width:168px;flex:none}
ul{list-style:none;margin:0;padding:0}
.beside ul{flex:1;min-width:190px}
.beside li{display:grid;grid-template-columns:14px 1fr auto 42px;gap:8px;align-items:center;
padding:3px 0;font-variant-numeric:tabular-nums;overflow-wrap:normal}
.beside li>:last-child{text-align:right}
.inline{display:flex;gap:18px;font-size:13.5px}
.inline li{display:flex;gap:6px;align-items:center}
.swatch{width:12px;height:12px;border-radius:3px;display:inline-block}
.track{stroke:var(--track)}.track-fill{fill:var(--track)}
text{font:11px system-ui,-apple-system,"Segoe UI","Noto Sans",Arial,sans-serif;fill:var(--ink)}
.big{font-weight:650}
svg .dim,.tick{fill:var(--dim)}
.tick{font-size:10.5px}
.middle{text-anchor:middle}.end{text-anchor:end}
.axis{stroke:var(--dim);stroke-width:1;fill:none}
.full{stroke:var(--over);stroke-width:1;stroke-dasharray:4 3}
.mark{stroke:var(--usage);stroke-width:4}
.plot{width:100%;height:auto;display:block}
.meter{width:100%;display:block;margin-top:3px}
.bar-row{padding:5px 0}
.bar-words{display:flex;justify-content:space-between;gap:10px;font-size:13.5px;flex-wrap:wrap;
font-variant-numeric:tabular-nums}
.bar-words b{overflow-wrap:anywhere}
.spaces .bar-row+.bar-row{border-top:1px solid var(--edge);padding-top:9px;margin-top:4px}
.finding{background:var(--card);border:1px solid var(--edge);border-left:4px solid var(--info);
border-radius:10px;padding:4px 16px;margin:10px 0}
.finding.error{border-left-color:var(--error)}.finding.warning{border-left-color:var(--usage)}
.finding>summary{display:flex;gap:12px;align-items:center;cursor:pointer;padding:10px 0;
list-style:none}
.finding>summary::-webkit-details-marker{display:none}
.finding>summary::after{content:"";width:8px;height:8px;flex:none;border:solid var(--dim);
border-width:0 2px 2px 0;transform:rotate(45deg);margin-bottom:4px}
.finding[open]>summary::after{transform:rotate(-135deg);margin-bottom:-4px}
.what{flex:1;min-width:0;display:flex;flex-direction:column}
.what b{font-weight:600}
.what code{color:var(--dim)}
.count{font-weight:650;font-variant-numeric:tabular-nums}
.tag{font-size:12px;font-weight:650;border-radius:99px;padding:2px 10px;border:1.5px solid;
white-space:nowrap}
.tag.error{color:var(--error)}.tag.warning{color:var(--warning)}.tag.info{color:var(--info)}
ol{margin:8px 0 12px;padding-left:26px}
li{overflow-wrap:anywhere}
.finding ol{columns:2 380px;column-gap:36px}
.finding ol li{padding:4px 0;break-inside:avoid}
.evidence{display:block;color:var(--dim);font-size:13.5px}
.first{margin-top:6px;font-size:13.5px}
.first summary{cursor:pointer;color:var(--dim)}
.fine{color:var(--dim)}
.scrolling{overflow-x:auto;margin:8px 0}
table{border-collapse:collapse;width:100%;font-size:13.5px;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:5px 12px 5px 0;white-space:nowrap;
border-bottom:1px solid var(--edge)}
th:first-child,td:first-child{text-align:left;white-space:normal;min-width:104px}
th{color:var(--dim);font-weight:600;white-space:normal}
.card>.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:24px}
.two>div{min-width:0}
summary:focus-visible,.scrolling:focus-visible{outline:2px solid var(--info);outline-offset:3px}
footer{margin-top:36px;color:var(--dim);font-size:13px}
@media (max-width:520px){main{padding:16px 12px 32px}.finding{padding:2px 12px}
.finding>summary{gap:4px 8px;flex-wrap:wrap}.what{order:3;flex-basis:100%}
.count{margin-left:auto}.numbers{grid-template-columns:repeat(3,1fr)}.number{padding:10px}
.number b{font-size:20px}table{font-size:12.5px}th,td{padding-right:8px}
th:first-child,td:first-child{min-width:84px}}
@media print{.card,.finding,.number{break-inside:avoid}}
"""
)
