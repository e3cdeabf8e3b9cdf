// The page of `tenon show --html`: the nodes of a model, the time of its kernels, and the memory of its values.
// data: { runs, nodes: [{ op, name, in, out, shape, bytes, flops, weights }], trace }
const nodes = data.nodes;

// Kernels by what they compute, with the nodes that their lines name: "run.c:8 onnx_run in conv1".
const kernels = new Map(), events = data.trace ? data.trace.traceEvents.filter(e => e.ph === 'X' && e.cat === 'kernel') : [];
for (const e of events) {
  const names = [...new Set(e.args.lines.map(l => (l.split(' in ')[1] || '').replace(/^layer /, '')).filter(s => s))];
  const key = e.name + '|' + names.join('|'), k = kernels.get(key) || { name: e.name, names, us: 0 };
  k.us += e.dur;
  kernels.set(key, k);
}
const rows = [...kernels.values()].sort((a, b) => b.us - a.us), total = rows.reduce((s, r) => s + r.us, 0), timeOf = new Map();
for (const r of rows) for (const n of r.names) timeOf.set(n, (timeOf.get(n) || 0) + r.us / r.names.length);
const flops = nodes.reduce((s, n) => s + n.flops, 0), weights = nodes.reduce((s, n) => s + n.weights, 0);
document.getElementById('note').textContent = `${nodes.length} nodes, ${bytes(weights)} of weights, ${(flops / 1e9).toFixed(3)} GFLOP a run, ` +
  `${rows.length} kernels, ${(total / data.runs / 1e3).toFixed(3)} ms a run, timed one by one`;

// Constants are left out: they are values, and most nodes have one.
const listed = nodes.filter(n => n.op !== 'Constant'), made = new Map(), most = max_of([...timeOf.values()], 1);
listed.forEach((n, i) => n.out.forEach(o => made.set(o, i)));
graph(section('Graph', 'The stronger the colour of a node, the longer its part of the kernels it is in: the time in its corner.'), {
  nodes: listed.map(n => ({ title: n.op, lines: [n.shape], corner: timeOf.has(n.name) ? time(timeOf.get(n.name) / data.runs) : '', heat: (timeOf.get(n.name) || 0) / most,
    tip: `${n.op} ${n.name}\n${n.shape}\n${(n.flops / 1e6).toFixed(2)} MFLOP, ${bytes(n.weights)} of weights` + (timeOf.has(n.name) ? `\n${time(timeOf.get(n.name) / data.runs)} a run` : '') })),
  edges: listed.flatMap((n, i) => n.in.filter(x => made.has(x) && made.get(x) < i).map(x => ({ from: made.get(x), to: i, tip: x }))),
});

const times = section('Time of each kernel, and the nodes in it', rows.length > 200 ? `The 200 longest of ${rows.length}.` : rows.length ? '' : 'Nothing was timed.');
bars(times, rows.slice(0, 200).map(r => ({ name: r.names.join(', ') || r.name, value: r.us, text: (r.us / data.runs / 1e3).toFixed(3) + ' ms', title: `${r.name}: ${r.names.join(', ')}` })));

// A value lives from its node to the last that reads it.
const last = new Map(), live = [], ends = nodes.map(() => 0);
let now = 0;
nodes.forEach((n, i) => n.in.forEach(x => last.set(x, i)));
nodes.forEach((n, i) => { now += n.bytes; ends[Math.max(i, last.get(n.out[0]) ?? nodes.length - 1)] += n.bytes; live.push([i, now]); now -= ends[i]; });
areas(section('Memory of intermediate values, node by node', `At most ${bytes(max_of(live.map(p => p[1]), 0))} if nothing is fused.`),
  { x: { label: 'node' }, y: { label: 'bytes', text: bytes, binary: true }, series: [{ name: 'intermediate values', points: live }] });
