// The page of a profile; profile_html.c says what its data is.
const us = ns => ns / 1e3, rows = data.rows, plural = (n, what) => `${n.toLocaleString('en')} ${what}${n === 1 ? '' : 's'}`;
document.getElementById('note').textContent = `${plural(data.launches, 'kernel')} in ${plural(data.runs, 'evaluation')}; timed one by one, each after the one before it: ` +
  `${(data.time / 1e6).toFixed(3)} ms of the ${(data.wall / 1e6).toFixed(3)} ms that it was on` + (data.lost ? `; ${data.lost} of them are missing here` : '');

const copy = data.ceilings.copy, rates = data.ceilings.products;
const told = ['copies ' + (copy ? (copy / 1e9).toFixed(1) + ' GB/s' : 'unknown'), ...rates.map(r => `products of ${r.dtype} ${(r.rate / 1e9).toFixed(1)} GFLOP/s`)].join(', ');
const rate = (amount, r) => r.time ? amount * r.count / r.time : NaN;
const about = (r, i) => `${i + 1}  ${r.name}\n${time(us(r.time / r.count))} mean of ${r.count}, ${percent(r.time / Math.max(1, data.time))} of the time\n` +
  `${rate(r.bytes, r).toFixed(1)} GB/s, ${rate(r.flops, r).toFixed(1)} GFLOP/s` + (r.percent === undefined ? '' : `, ${r.percent.toFixed(1)} % of the ceiling`) + '\n' + r.lines.slice(0, 8).join('\n');

// What a page says of a list that is too long for it.
const cut = (list, all, what) => all > list.length ? ` The first ${list.length.toLocaleString('en')} of ${all.toLocaleString('en')} ${what} are shown.` : '';

// ---- timeline: three tracks, of which a part is shown

const tracks = ['kernels', 'host', 'copies'], spans = [];
for (const [from, ns, row] of data.events) spans.push({ track: 0, from, to: from + ns, hue: Math.min(row, 7), text: `${row + 1} ${rows[row].name}`, tip: () => `${about(rows[row], row)}\nthis run: ${time(us(ns))} at ${time(us(from))}` });
for (const [from, ns, what, n] of data.host) spans.push({ track: data.work[what].startsWith('copy') ? 2 : 1, from, to: from + ns, hue: what, text: data.work[what], tip: () => `${data.work[what]}: ${time(us(ns))} at ${time(us(from))}` + (n ? `, ${bytes(n)}` : '') });
const start = min_of(spans.map(s => s.from), 0), end = max_of(spans.map(s => s.to), 1), view = { from: start, to: end };

// Where a track ends that was cut; null if it is whole. Copies are part of the host's list.
const last = list => list.length ? list[list.length - 1][0] + list[list.length - 1][1] : 0;
const ends = [data.launches - data.lost > data.events.length ? last(data.events) : null, ...Array(2).fill(data.hosts > data.host.length ? last(data.host) : null)];

// As many words of a text as n letters have room for.
const words = (t, n) => t.length <= n ? t : t.slice(0, Math.max(0, t.lastIndexOf(' ', n)));

// What is narrower than a pixel is drawn together with its neighbours, so that any number of spans is a few hundred boxes.
function timeline(width) {
  const left = 58, high = 26, root = svg('svg', { width, height: 3 * (high + 6) + 26, viewBox: `0 0 ${width} ${3 * (high + 6) + 26}`, role: 'img' }), at = v => left + (v - view.from) / (view.to - view.from) * (width - left - 4);
  const open = [null, null, null], paint = Array.from({ length: 8 }, (_, i) => painted(root, i).fill);
  const draw = o => {
    const x = Math.max(left, at(o.from)), w = Math.max(.7, Math.min(width - 4, at(o.to)) - x), y = o.track * (high + 6), g = svg('g', { class: hue(o.hue) });
    const label = o.count > 1 ? '' : words(o.text, Math.floor((w - 6) / 6.8)), look = o.count > 1 ? 'fill:var(--c);fill-opacity:.4' : label ? 'fill:var(--c);fill-opacity:.75' : `fill:${paint[o.hue % 8]}`;
    g.append(svg('rect', { x: x.toFixed(2), y, width: w.toFixed(2), height: high, style: `${look};stroke:var(--paper);stroke-width:${w > 3 ? 1 : 0}` }, tip(o.count > 1 ? `${o.count} short ones` : o.tip())));
    if (label) g.append(svg('text', { x: (x + 4).toFixed(1), y: y + 17, style: 'pointer-events:none' }, label));
    root.append(g);
  };
  for (const s of spans) {
    if (s.to < view.from || s.from > view.to) continue;
    const o = open[s.track], small = at(s.to) - at(s.from) < 1.5;
    if (o && small && at(s.from) - at(o.to) < 1 && at(s.to) - at(o.from) < 6) { o.to = s.to; o.count++; continue; }
    if (o) draw(o);
    open[s.track] = { ...s, count: 1 };
  }
  for (const o of open) if (o) draw(o);
  tracks.forEach((t, i) => {
    root.append(svg('text', { class: 'soft', x: 0, y: i * (high + 6) + 17 }, t));
    if (ends[i] === null || ends[i] > view.to || at(ends[i]) > width - 90) return;
    const x = Math.max(left, at(ends[i])), y = i * (high + 6);
    root.append(svg('path', { class: 'axis', d: `M${x.toFixed(1)} ${y}v${high}`, 'stroke-dasharray': '3 3' }), svg('text', { class: 'soft', x: x + 5, y: y + 17 }, 'not shown'));
  });
  const marks = ticks({}, { from: view.from, to: view.to }, Math.max(2, Math.floor(width / 110)));
  for (const v of marks) {
    const x = at(v), anchor = x > width - 40 ? 'end' : x < left + 30 ? 'start' : 'middle';
    root.append(svg('path', { class: 'axis', d: `M${x.toFixed(1)} ${3 * (high + 6)}v4` }), svg('text', { class: 'soft', x, y: 3 * (high + 6) + 18, 'text-anchor': anchor }, time(us(v), us(marks[1] - marks[0]) || 1)));
  }
  return root;
}
const line = section('Timeline', 'Numbers are those of the table. Copies and compiling take the host\'s time; kernels that run on the processor are inside "launch and wait".' +
  cut(data.events, data.launches - data.lost, 'runs of kernels (the table counts all)') + cut(data.host, data.hosts, 'pieces of work of the host, copies among them,'), true);
const tools = html('div', { class: 'tools' }), strip = (line.append(tools), plot(line, timeline));
if (data.host.length) legend(line, data.work, 'area');
let follow = () => {};  // what shows the same part of the time
function look(from, to) {
  const wide = Math.min(end - start, Math.max(50, to - from)), at = Math.max(start, Math.min(end - wide, from));
  view.from = at; view.to = at + wide; strip.redraw(); follow();
}
const move = { 'closer': () => look(view.from + (view.to - view.from) / 4, view.to - (view.to - view.from) / 4), 'farther': () => look(view.from - (view.to - view.from) / 2, view.to + (view.to - view.from) / 2),
  'earlier': () => look(view.from - (view.to - view.from) / 2, view.to - (view.to - view.from) / 2), 'later': () => look(view.from + (view.to - view.from) / 2, view.to + (view.to - view.from) / 2), 'all': () => look(start, end) };
for (const name in move) { const b = html('button', { type: 'button' }, name); b.onclick = move[name]; tools.append(b); }
strip.box.addEventListener('wheel', e => { if (!e.ctrlKey) return; e.preventDefault(); move[e.deltaY < 0 ? 'closer' : 'farther'](); }, { passive: false });

// ---- roofline

const drawn = rows.map((r, i) => ({ r, i, x: r.flops / r.bytes, y: rate(r.flops, r) })).filter(p => p.x > 0 && Number.isFinite(p.x) && p.y > 0), peak = Math.max(...rates.map(r => r.rate), 0) / 1e9;
const roof = section('Roofline', `Each kernel between the ceilings that were measured here: ${told}.` + (drawn.length < rows.length ? ` ${rows.length - drawn.length} that ${rows.length - drawn.length === 1 ? 'computes nothing is' : 'compute nothing are'} in the table alone.` : '') + ' Values that stay in a cache can exceed the ceiling of memory.');
if (drawn.length && copy && peak) {
  const knee = peak / (copy / 1e9), low = min_of(drawn.map(p => p.x), knee / 4) / 1.5, high = max_of(drawn.map(p => p.x), knee * 4) * 1.5;
  const put = p => [p.x, p.y, about(p.r, p.i), p.i < 9 ? String(p.i + 1) : ''];
  scatter(roof, { height: 340, x: { label: 'flops for each byte that is moved', log: true, from: low, to: high, text: count }, y: { label: 'GFLOP/s', log: true, text: count, from: min_of(drawn.map(p => p.y), low * copy / 1e9) / 1.5, to: max_of(drawn.map(p => p.y), peak) * 2 },
    series: [{ name: 'kernels with a product', points: drawn.filter(p => p.r.products).map(put) }, { name: 'other kernels', points: drawn.filter(p => !p.r.products).map(put) }].filter(s => s.points.length),
    lines: [{ name: `memory: ${(copy / 1e9).toFixed(1)} GB/s`, end: 'start', points: [[low, low * copy / 1e9], [knee, peak]] }, ...rates.map((r, i) => ({ name: `${r.dtype}: ${(r.rate / 1e9).toFixed(1)} GFLOP/s`, dash: i ? '6 4' : null, points: [[r.rate / copy, r.rate / 1e9], [high, r.rate / 1e9]] }))] });
} else roof.append(html('p', {}, 'There is nothing to compare with.'));

// ---- memory: it stays as it is until the next change. It shows the part of the time that the timeline does

const changes = data.memory.length, whole = data.changes <= changes, memory = section('Memory over time, by owner',
  changes ? `At most ${bytes(data.most)}. Other: data, values of earlier evaluations, weights without gradients. It follows the timeline above.` +
    (whole ? '' : ` The first ${changes.toLocaleString('en')} of ${data.changes.toLocaleString('en')} changes are shown, up to ${time(us(data.memory[changes - 1][0]))}; the most is that of all.`) : 'Nothing was evaluated.');
const owners = data.owners.map((name, i) => ({ name, i })).filter(o => data.memory.some(m => m[o.i + 1] > 0)), held = { height: 320, x: { label: 'ms', text: v => String(Number(v.toPrecision(9))) }, y: { label: 'bytes', text: bytes, binary: true }, series: [], stairs: true };
function hold() {
  const kept = data.memory.filter((m, k) => m[0] <= view.to && (k + 1 === data.memory.length || data.memory[k + 1][0] >= view.from)), ms = v => Math.min(Math.max(v, view.from), view.to) / 1e6;
  const until = kept.length ? ms(whole ? view.to : Math.min(view.to, data.memory[changes - 1][0])) : 0;
  const points = i => kept.map(m => [ms(m[0]), m[i]]).concat(kept.slice(-1).map(m => [until, m[i]]));
  held.series = owners.map(o => ({ name: o.name, points: points(o.i + 1) }));
}
hold();
const store = owners.length ? areas(memory, held) : null;
follow = () => { hold(); if (store) store.redraw(); };

// ---- table

const lines_of = r => [...r.lines.slice(0, 3), ...(r.lines.length > 3 ? [`and ${r.lines.length - 3} more`] : [])].join(', ') +
  (r.alike.length ? `; alike in ${r.alike.slice(0, 3).join(', ')}${r.alike.length > 3 ? `, and ${r.alike.length - 3} more` : ''}` : '') + (r.spilled ? `; a thread spills ${r.spilled} bytes` : '');
const digits = (v, n) => [Number.isFinite(v) ? v : -1, Number.isFinite(v) ? v.toFixed(n) : '-'];
table(section('Kernels', '', true), ['#', 'ms', 'share %', 'count', 'mean µs', 'best µs', 'GB/s', 'GFLOP/s', '% of ceiling', 'kernel', 'lines'],
  rows.map((r, i) => [i + 1, digits(r.time / 1e6, 3), digits(100 * r.time / Math.max(1, data.time), 1), r.count, digits(us(r.time / r.count), 2), digits(us(r.best), 2), digits(rate(r.bytes, r), 1), digits(rate(r.flops, r), 1),
    digits(r.percent === undefined ? NaN : r.percent, 1), r.name, lines_of(r)]));
