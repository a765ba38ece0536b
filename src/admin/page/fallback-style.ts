/** Of the page without scripts. */
export const fallbackStyle = `
:root { color-scheme: light dark; --ink: #1c2430; --dim: #5b6675; --paper: #f7f8fa; --card: #fff; --line: #d8dde4; --good: #1d7a4c; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --dim: #98a3b3; --paper: #14181e; --card: #1c222a; --line: #343d49; --good: #5fca94; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem 1.5rem 3rem; max-width: 80rem; font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); }
header { display: flex; flex-wrap: wrap; gap: .2rem 1rem; align-items: baseline; }
h1 { font-size: 1.3rem; margin: 0; }
h2 { font-size: 1rem; margin: 1.6rem 0 .4rem; }
header nav { margin-left: auto; display: flex; gap: 1rem; }
a { color: inherit; }
.dim, .none { color: var(--dim); }
.good { color: var(--good); }
.bad { color: var(--bad); }
.state { font-weight: 600; }
.flow { display: block; width: 100%; max-width: 60rem; margin: 1rem auto; }
.flow rect { fill: var(--card); stroke: var(--line); stroke-width: 1.5; }
.flow .bad rect { stroke: var(--bad); stroke-dasharray: 5 4; }
.flow text { fill: var(--dim); font-size: 12px; }
.flow text.name { fill: var(--ink); font-size: 14px; font-weight: 600; }
.flow .arrow { fill: none; stroke: var(--good); stroke-width: 2; }
.flow .arrow.bad { stroke: var(--bad); stroke-dasharray: 5 4; }
.flow marker path { fill: var(--dim); }
.scroll { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: .5rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .35rem .7rem; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child td { border-bottom: 0; }
th { font-size: .8rem; color: var(--dim); font-weight: 600; white-space: nowrap; }
td.number, th.number { text-align: right; }
td.mono { font-family: ui-monospace, monospace; font-size: .85rem; overflow-wrap: anywhere; }
`;
