// The page of plans; explain_html.c says what its data is.
const exact = n => `${n.toLocaleString('en')} bytes`, times = list => [...list.reduce((m, o) => m.set(o, (m.get(o) || 0) + 1), new Map())].map(([o, n]) => n > 1 ? `${o} ×${n}` : o);

const stored = s => times((s.stored || []).map(v => `${v[0]}: ${v[1]}`)).join('; ');

// What is known of a step, in the box beside the graph.
function show(box, p, s) {
  box.replaceChildren(html('h2', {}, `${s.number}  ${s.name}`));
  facts(box, { sizes: s.sizes, 'bytes moved': exact(s.bytes), flops: count(s.flops), 'ops in it': `${s.ops.length}: ${times(s.ops).join(', ')}`, 'computed by': s.by, 'not deterministic': s.varies, 'launched with': s.with, tuned: s.tuned, 'runs': s.times ? `${s.times} times` : '',
    'reads of other kernels': s.reads.map(r => `${p.steps[r[0]] ? p.steps[r[0]].number : '?'}: ${r[2]}, ${bytes(r[1])}`).join('; '), 'reads of before': s.inputs.map(i => `${i[1]}, ${bytes(i[0])}`).join('; '),
    'stores beyond the plan': stored(s) });
  box.append(html('h3', {}, 'Lines of the program'), ...s.lines.map(l => html('div', {}, l)));
  for (const b of s.body || []) box.append(html('h3', {}, `${b.number}  ${b.name} ${b.sizes}`), html('div', {}, `${exact(b.bytes)}; ${times(b.ops).join(', ')}`), ...b.lines.map(l => html('div', { class: 'note' }, l)));
  if (s.instructions) box.append(html('h3', {}, 'Instructions'), html('pre', {}, s.instructions));
  if (s.text) box.append(html('h3', {}, 'Text of the kernel'), html('pre', {}, s.text));
  if (s.cut) box.append(html('p', { class: 'note' }, 'Its text is left out: those of the kernels before it are 4 MiB. tenon explain --source, or TN_EXPLAIN=source, prints all.'));
}

function draw(p) {
  const most = max_of(p.steps.map(s => s.bytes), 1);
  document.getElementById('note').textContent = `${p.device}: ${p.kernels} kernel${p.kernels === 1 ? '' : 's'}, ${exact(p.moved)} moved, ${p.least.toLocaleString('en')} at least; memory for intermediate values: ${bytes(p.arena)} planned, ${bytes(p.bound)} lower bound` +
    (p.unfused ? `; not fused: ${p.unfused}` : '') + (p.declined ? `; recorded as other ops: ${p.declined}` : '') + (p.tuned ? `; tuned: ${p.tuned}` : '');
  const map = section(`Kernels of ${p.title}`, 'Each box is a kernel or a library call, below all that it reads; the stronger its colour, the more bytes it moves. A line is data from one to another. Click on a box, or press Enter, for its text.'), side = section('A kernel', 'Choose one.');
  graph(map, { width: 220, tall: 74, nodes: p.steps.map(s => ({ title: `${s.number} ${s.name}`, corner: bytes(s.bytes), lines: [s.sizes, times(s.ops).join(', ')], heat: s.bytes / most, pick: () => { show(side, p, s); if (side.getBoundingClientRect().top > innerHeight) side.scrollIntoView(); },
    tip: `${s.number}  ${s.name} ${s.sizes}\n${exact(s.bytes)}\nops: ${times(s.ops).join(', ')}\n${s.lines.slice(0, 6).join('\n')}` })),
    edges: p.steps.flatMap((s, i) => s.reads.map(r => ({ from: r[0], to: i, wide: (1 + 2.5 * Math.max(0, Math.log(r[1] + 1) - Math.log(most + 1) + 7) / 7).toFixed(2), tip: `${r[2]}, ${bytes(r[1])}` }))) });
  if (p.steps.length) show(side, p, p.steps.reduce((a, b) => b.bytes > a.bytes ? b : a));
  table(section('All of them', '', true), ['#', 'kernel', 'sizes', 'bytes', 'flops', 'ops in it', 'stored, and why', 'lines'], p.steps.map((s, i) => [[i, s.number], s.name, s.sizes, s.bytes, [s.flops, count(s.flops)], times(s.ops).join(', '),
    stored(s), [...s.lines.slice(0, 3), ...(s.lines.length > 3 ? [`and ${s.lines.length - 3} more`] : [])].join(', ')]));
}

// A program builds several plans: the largest is shown first.
const main = document.getElementById('main'), largest = data.plans.reduce((b, p, i) => p.kernels > data.plans[b].kernels ? i : b, 0);
function choose(i) {
  main.replaceChildren();
  if (data.plans.length > 1) {
    const tools = html('div', { class: 'tools' });
    data.plans.forEach((p, k) => { const b = html('button', { type: 'button', 'aria-pressed': k === i }, `${p.title}: ${p.kernels}`); b.onclick = () => choose(k); tools.append(b); });
    section('Plans, and how many kernels each has', data.left ? `The program built ${data.left.toLocaleString('en')} more, which are not shown; TN_EXPLAIN=FILE with another name than .html has the text of all.` : '', true).append(tools);
  }
  draw(data.plans[i]);
}
if (data.plans.length) choose(largest);
else section('Plans', 'Nothing was planned.', true);
