'use strict';
// What every page shares. The page's own script comes after this one and uses, in order of need:
//   data                      the page's data
//   section(title, note)      a box of the page; section(title, note, true): as wide as the page. Returns its element
//   table(into, heads, rows)  cells are texts, numbers, elements, or [value to sort by, what is shown]
//   facts(into, { name: value })                    or [[name, value]], where names may be anything
//   bars(into, [{ name, value, text, title }])       the longest first, as they are given
//   lines(into, { x, y, series: [{ name, points: [[x, y]], faint }], height })   faint: noise behind another series, without marks
//   areas(into, { x, y, series, stairs })            stacked; all series have the same x. stairs: values stay until the next point
//   scatter(into, { x, y, series, lines: [{ name, points }] })   points: [x, y, title, label]
//   graph(into, { nodes: [{ title, corner, lines, tip, heat, pick }], edges: [{ from, to, text, tip }] })
// x and y of a chart are { label, log, binary, from, to, text }: text(v) shows a value, binary: marks at powers of two. bytes, count and time are such.
// Charts are drawn for the width they have, and again when that changes. What the mouse shows is in <title>.
const data = JSON.parse(document.getElementById('data').textContent);

// ---- elements

function fill(e, attributes, children) {
  for (const k in attributes || {}) if (attributes[k] !== undefined && attributes[k] !== null) e.setAttribute(k, attributes[k]);
  for (const c of children) if (c !== undefined && c !== null) e.append(c.nodeType ? c : String(c));
  return e;
}
const html = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);
const tip = text => svg('title', {}, text);

function section(title, note, wide) {
  const s = html('section', { class: wide ? 'wide' : null }, html('h2', {}, title));
  if (note) s.append(html('p', { class: 'note' }, note));
  document.getElementById('main').append(s);
  return s;
}

// ---- values as text

function scaled(v, step, units, unit) {
  let u = 0;
  while (Math.abs(v) >= step && u < units.length - 1) { v /= step; u++; }
  return (u || !Number.isInteger(v) ? Number(v.toPrecision(3)) : v) + ' ' + units[u] + unit;
}
const bytes = v => scaled(v, 1024, ['', 'Ki', 'Mi', 'Gi', 'Ti'], 'B');
const count = v => Math.abs(v) < 1 && v ? Number(v.toPrecision(3)).toString() : scaled(v, 1000, ['', 'K', 'M', 'G', 'T', 'P'], '').trim();
const plain = v => Math.abs(v) >= 1e5 || (v && Math.abs(v) < 1e-3) ? v.toExponential(1).replace('e+', 'e') : String(Number(v.toPrecision(4)));
// Microseconds.
// step: how far apart labels are that must differ.
const time = (v, step) => { const [unit, name, most] = v >= 1e6 ? [1e6, ' s', 3] : v >= 1e3 ? [1e3, ' ms', 3] : [1, ' µs', 2]; return (v / unit).toFixed(step ? Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9)) : most) + name; };
const percent = v => (100 * v).toFixed(1) + ' %';

// Of lists of any length: a call takes some 100,000 arguments at most, so that Math.max(...list) fails for the matrix of 400 classes.
const max_of = (list, least) => list.reduce((m, v) => v > m ? v : m, least), min_of = (list, most) => list.reduce((m, v) => v < m ? v : m, most);

// ---- tables, facts, bars

const shown = cell => Array.isArray(cell) ? cell[1] : typeof cell === 'number' ? cell.toLocaleString('en') : cell;
const sorted_by = cell => Array.isArray(cell) ? cell[0] : cell;

function table(into, heads, rows) {
  const number = heads.map((_, i) => rows.length > 0 && rows.every(r => typeof sorted_by(r[i]) === 'number'));
  const body = html('tbody'), state = { by: -1, down: false };
  const box = html('div', { class: 'scroll' }), whole = html('button', { type: 'button' }, `show all ${rows.length} rows`);
  // A long table is begun, so that the page opens at once; it is whole when asked for, and on paper.
  let limit = 200;
  const put = () => body.replaceChildren(...rows.slice(0, limit).map(r => html('tr', {}, ...r.map((c, i) => html('td', { class: number[i] ? 'number' : String(shown(c)).length > 40 ? 'long' : null }, shown(c))))));
  const sort = i => {
    state.down = state.by === i ? !state.down : number[i];
    state.by = i;
    rows = [...rows].sort((a, b) => { const x = sorted_by(a[i]), y = sorted_by(b[i]); return (x < y ? -1 : x > y ? 1 : 0) * (state.down ? -1 : 1); });
    put();
  };
  const head = heads.map((t, i) => { const b = html('button', { title: 'sort' }, t); b.onclick = () => sort(i); return html('th', { class: number[i] ? 'number' : null }, b); });
  put();
  box.append(html('table', {}, html('thead', {}, html('tr', {}, ...head)), body));
  into.append(box);
  if (rows.length <= limit) return;
  const all = html('div', { class: 'tools' }, whole);
  whole.onclick = () => { limit = Infinity; put(); all.remove(); };
  addEventListener('beforeprint', () => whole.onclick());
  into.append(all);
}

function facts(into, of) {
  const list = html('dl');
  for (const [k, v] of Array.isArray(of) ? of : Object.entries(of)) if (v !== undefined && v !== null && v !== '') list.append(html('dt', {}, k), html('dd', {}, v));
  into.append(list);
}

function bars(into, items) {
  const most = max_of(items.map(i => i.value), 1e-300);
  for (const i of items)
    into.append(html('div', { class: 'bar', title: i.title || i.name }, html('div', { class: 'name' }, i.name),
      html('div', { class: 'full' }, html('div', { class: 'part', style: `width:${(100 * i.value / most).toFixed(2)}%` })), html('div', { class: 'value' }, i.text)));
}

// ---- charts

// Draws now and whenever the width changes: draw(width) returns an svg.
function plot(into, draw) {
  const box = html('div', { class: 'plot' });
  let width = 0;
  const again = () => { const w = Math.floor(box.clientWidth); if (w > 0 && w !== width) { width = w; box.replaceChildren(draw(w)); } };
  into.append(box);
  again();
  new ResizeObserver(again).observe(box);
  return { box, redraw: () => { width = 0; again(); } };
}

const hue = i => 's' + i % 8;
const shapes = ['M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0', 'M-3.5-3.5h7v7h-7Z', 'M0-4.5L4.5 3.5h-9Z', 'M0-5L5 0L0 5L-5 0Z', 'M0 4.5L4.5-3.5h-9Z', 'M-1.3-4.5h2.6v3.2h3.2v2.6h-3.2v3.2h-2.6v-3.2h-3.2v-2.6h3.2Z',
  'M-4.5-2h9v4h-9Z', 'M-2-4.5h4v9h-4Z'];
const mark = (i, x, y, ...children) => svg('path', { class: 'mark ' + hue(i), d: shapes[i % 8], transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})` }, ...children);

function legend(into, names, kind) {
  if (names.length < 2 && kind !== 'always') return;
  into.append(html('div', { class: 'legend' }, ...names.map((n, i) => {
    const sample = svg('svg', { width: 26, height: 12 });
    if (kind === 'area') sample.append(svg('rect', { x: 2, y: 1, width: 22, height: 10, ...painted(sample, i) }));
    else if (kind !== 'always') sample.append(svg('path', { class: 'series ' + hue(i), d: 'M1 6H25' }));
    if (kind !== 'area') sample.append(mark(i, 13, 6));
    return html('span', {}, sample, n);
  })));
}

// Where a value lies: from 0 to 1.
function scale(axis, values) {
  const finite = values.filter(v => Number.isFinite(v) && (!axis.log || v > 0));
  let from = axis.from ?? min_of(finite, Infinity), to = axis.to ?? max_of(finite, -Infinity);
  if (!finite.length) { from = axis.log ? 1 : 0; to = axis.log ? 10 : 1; }
  if (from === to) { from = axis.log ? from / 2 : from - (Math.abs(from) || 1) / 2; to = axis.log ? to * 2 : to + (Math.abs(to) || 1) / 2; }
  const f = axis.log ? Math.log10 : v => v, a = f(from), b = f(to);
  // Halves, since the range of values of both signs may be more than the largest number.
  return { from, to, at: v => (f(axis.log ? Math.max(v, 1e-300) : v) / 2 - a / 2) / (b / 2 - a / 2) };
}

function ticks(axis, s, most) {
  const list = [];
  if (axis.log) {
    const decades = Math.ceil(Math.log10(s.to / s.from)), every = Math.max(1, Math.ceil(decades / most));
    for (let e = Math.ceil(Math.log10(s.from) - 1e-9); e <= Math.log10(s.to) + 1e-9; e += every) list.push(10 ** e);
    if (list.length > 1 && decades > 1) return list;
    // Within two decades 2 and 5 are marks, too.
    const first = Math.floor(Math.log10(s.from)), more = [first, first + 1, first + 2].flatMap(e => [1, 2, 5].map(m => Number((m * 10 ** e).toPrecision(3)))).filter(v => v >= s.from * .999999 && v <= s.to * 1.000001);
    return more.length > 1 ? more : [s.from, s.to];
  }
  const raw = s.to / Math.max(1, most) - s.from / Math.max(1, most), power = 10 ** Math.floor(Math.log10(raw));
  const step = axis.binary ? 2 ** Math.ceil(Math.log2(raw)) : power * ([1, 2, 5].find(m => m * power >= raw) || 10);
  for (let v = Math.ceil(s.from / step - 1e-9) * step; v <= s.to + step * 1e-6; v += step) list.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  return list;
}

// The axes of a chart, and where values lie in it: { root, x(v), y(v), width, height }.
function frame(o, width, xs, ys) {
  const height = o.height || Math.max(180, Math.min(300, width * .5)), sx = scale(o.x, xs), sy = scale(o.y, ys), text = a => a.text || plain;
  const marks = ticks(o.y, sy, Math.max(2, Math.floor(height / 45))), wide = Math.max(...marks.map(v => text(o.y)(v).length), 2) * 7 + 8;
  const left = wide + 4, right = width - 12, top = o.y.label ? 24 : 18, bottom = height - 34, root = svg('svg', { width, height, viewBox: `0 0 ${width} ${height}`, role: 'img' });
  const x = v => left + sx.at(v) * (right - left), y = v => bottom - sy.at(v) * (bottom - top);
  for (const v of marks) root.append(svg('path', { class: 'grid', d: `M${left} ${y(v).toFixed(1)}H${right}` }), svg('text', { class: 'soft', x: left - 6, y: y(v) + 4, 'text-anchor': 'end' }, text(o.y)(v)));
  for (const v of ticks(o.x, sx, Math.max(2, Math.floor((right - left) / 85)))) {
    const at = x(v), label = text(o.x)(v), anchor = at > right - label.length * 3.5 ? 'end' : at < left + 8 ? 'start' : 'middle';
    root.append(svg('path', { class: 'axis', d: `M${at.toFixed(1)} ${bottom}v4` }), svg('text', { class: 'soft', x: at, y: bottom + 16, 'text-anchor': anchor }, label));
  }
  root.append(svg('path', { class: 'axis', d: `M${left} ${top}V${bottom}H${right}` }), svg('text', { class: 'soft', x: 2, y: 10 }, o.y.label || ''),
    svg('text', { class: 'soft', x: right, y: height - 3, 'text-anchor': 'end' }, o.x.label || ''));
  return { root, x, y, left, right, top, bottom, height };
}

// At most two points for each of `most` stretches of a long series: its lowest and its highest.
function thin(points, most) {
  if (points.length <= 2 * most) return points;
  const kept = [];
  for (let i = 0; i < most; i++) {
    const part = points.slice(Math.floor(i * points.length / most), Math.floor((i + 1) * points.length / most));
    let low = 0, high = 0;
    part.forEach((p, k) => { if (p[1] < part[low][1]) low = k; if (p[1] > part[high][1]) high = k; });
    kept.push(part[Math.min(low, high)]);
    if (low !== high) kept.push(part[Math.max(low, high)]);
  }
  return kept;
}
const ok = (axis, v) => v !== null && Number.isFinite(v) && (!axis.log || v > 0);

// The stretches of a series between values that are none: a line is not drawn across those.
function stretches(points, good) {
  const list = [[]];
  for (const p of points) { if (good(p)) list[list.length - 1].push(p); else if (list[list.length - 1].length) list.push([]); }
  return list.filter(part => part.length);
}

function lines(into, o) {
  legend(into, o.series.map(s => s.name));
  return plot(into, width => {
    const all = o.series.flatMap(s => s.points.filter(p => ok(o.y, p[1]) && ok(o.x, p[0]))), f = frame(o, width, all.map(p => p[0]), all.map(p => p[1]));
    o.series.forEach((s, i) => {
      const whole = stretches(s.points, p => ok(o.x, p[0]) && ok(o.y, p[1])), most = Math.max(20, Math.floor(width / 2)) / whole.reduce((n, part) => n + part.length, 0);
      const parts = whole.map(part => thin(part, Math.max(1, Math.floor(most * part.length)))), points = parts.flat(), apart = Math.max(1, Math.ceil(points.length / 12)), alone = new Set(parts.filter(part => part.length === 1).flat());
      const path = part => part.map((p, k) => `${k ? 'L' : 'M'}${f.x(p[0]).toFixed(1)} ${f.y(p[1]).toFixed(1)}`).join('');
      f.root.append(svg('path', { class: 'series ' + hue(i) + (s.faint ? ' faint' : ''), d: parts.map(path).join('') }));
      if (s.faint) return;
      points.forEach((p, k) => {
        const say = tip(`${s.name}: ${(o.y.text || plain)(p[1])} at ${(o.x.text || plain)(p[0])}`), x = f.x(p[0]), y = f.y(p[1]);
        f.root.append(k % apart === 0 || k === points.length - 1 || alone.has(p) ? mark(i, x, y, say) : svg('circle', { class: 'hit', cx: x.toFixed(1), cy: y.toFixed(1), r: 5 }, say));
      });
    });
    return f.root;
  });
}

// A fill with a hatch of its own: the angle and the distance of its lines differ from series to series.
let patterns = 0;
function painted(root, i) {
  const id = 'hatch' + patterns++, apart = [0, 7, 7, 5, 5, 9, 4, 12][i % 8], p = svg('pattern', { id, class: hue(i), width: apart || 8, height: apart || 8, patternUnits: 'userSpaceOnUse', patternTransform: `rotate(${[0, 45, -45, 90, 0, 20, 60, 45][i % 8]})` });
  p.append(svg('rect', { width: 12, height: 12, style: 'fill:var(--c);opacity:.45' }));
  if (apart) p.append(svg('path', { d: 'M0 0V12', style: 'stroke:var(--c);stroke-width:2.4' }));
  root.append(svg('defs', {}, p));
  return { fill: `url(#${id})` };
}

// Of series with many points, those of each half of a pixel's width at which their sum is highest and lowest: more would be drawn over each other.
function thin_stack(series, most) {
  const n = series.length ? series[0].points.length : 0, sums = Array(n).fill(0);
  if (n <= 2 * most) return series;
  for (const s of series) s.points.forEach((p, k) => { sums[k] += p[1]; });
  const kept = new Set(thin(sums.map((v, k) => [k, v]), most).map(p => p[0])).add(0).add(n - 1);
  return series.map(s => ({ ...s, points: s.points.filter((_, k) => kept.has(k)) }));
}
const stairs_of = s => ({ ...s, points: s.points.flatMap((p, k) => k ? [[p[0], s.points[k - 1][1]], p] : [p]) });

function areas(into, o) {
  legend(into, o.series.map(s => s.name), 'area');
  return plot(into, width => {
    const few = thin_stack(o.series, width / 2), list = o.stairs ? few.map(stairs_of) : few, n = list.length ? list[0].points.length : 0, sums = Array(n).fill(0), tops = list.map(s => s.points.map((p, k) => sums[k] += p[1]));
    const f = frame({ ...o, y: { from: 0, ...o.y } }, width, n ? list[0].points.map(p => p[0]) : [], sums);
    list.forEach((s, i) => {
      const px = s.points.map(p => f.x(p[0]).toFixed(1)), edge = (v, k) => `${px[k]} ${f.y(v).toFixed(1)}`;
      const lower = i ? tops[i - 1] : sums.map(() => 0), up = tops[i].map((v, k) => (k ? 'L' : 'M') + edge(v, k)).join(''), back = lower.map((v, k) => 'L' + edge(v, k)).reverse().join('');
      if (n) f.root.append(svg('path', { d: up + back + 'Z', ...painted(f.root, i) }, tip(`${s.name}: at most ${(o.y.text || plain)(max_of(o.series[i].points.map(p => p[1]), 0))}`)));
      // An edge of many stairs would hide the areas below it.
      if (n && n <= width / 4) f.root.append(svg('path', { class: hue(i), d: up, style: 'stroke:var(--c);fill:none' }));
    });
    return f.root;
  });
}

function scatter(into, o) {
  legend(into, o.series.map(s => s.name), 'always');
  return plot(into, width => {
    const all = [...o.series, ...(o.lines || [])].flatMap(s => s.points), f = frame(o, width, all.map(p => p[0]), all.map(p => p[1]));
    // A label lies where it covers neither a mark nor another label, if there is such a place.
    const taken = o.series.flatMap(s => s.points.filter(p => ok(o.x, p[0]) && ok(o.y, p[1])).map(p => [f.x(p[0]) - 5, f.y(p[1]) - 5, f.x(p[0]) + 5, f.y(p[1]) + 5]));
    const put = (text, x, y, places) => {
      const box = ([dx, dy, anchor]) => { const wide = 6.8 * text.length, from = x + dx - (anchor === 'end' ? wide : anchor === 'middle' ? wide / 2 : 0); return [from, y + dy - 11, from + wide, y + dy + 3]; };
      const free = b => b[0] >= 0 && b[2] <= width && b[1] >= 0 && taken.every(t => t[0] >= b[2] || t[2] <= b[0] || t[1] >= b[3] || t[3] <= b[1]), [dx, dy, anchor] = places.find(p => free(box(p))) || places[0];
      taken.push(box([dx, dy, anchor]));
      f.root.append(svg('text', { class: 'over', x: x + dx, y: y + dy, 'text-anchor': anchor }, text));
    };
    for (const l of o.lines || []) {
      const p = l.points.map(q => [f.x(q[0]), f.y(q[1])]), at = p[l.end === 'start' ? 0 : p.length - 1];
      f.root.append(svg('path', { class: 'ceiling', 'stroke-dasharray': l.dash, d: p.map((q, k) => `${k ? 'L' : 'M'}${q[0].toFixed(1)} ${q[1].toFixed(1)}`).join('') }, tip(l.name)));
      put(l.name, at[0], at[1], l.end === 'start' ? [[14, 14, 'start'], [4, -8, 'start'], [4, -24, 'start']] : [[-4, -6, 'end'], [-4, 15, 'end'], [-4, -22, 'end']]);
    }
    o.series.forEach((s, i) => s.points.forEach(p => {
      if (!ok(o.x, p[0]) || !ok(o.y, p[1])) return;
      f.root.append(mark(i, f.x(p[0]), f.y(p[1]), tip(p[2] || s.name)));
      if (p[3]) put(p[3], f.x(p[0]), f.y(p[1]), [[7, 4, 'start'], [-7, 4, 'end'], [0, -7, 'middle'], [0, 17, 'middle']]);
    }));
    return f.root;
  });
}

// ---- graphs

// Places nodes below all that they read, what reads nothing right above its first reader; in a row by the mean place of
// what they read, so that few edges cross.
function placed(nodes, edges) {
  const rank = nodes.map(() => 0), reads = nodes.map(() => []), rows = [], column = [];
  for (const e of edges) if (e.from < e.to) reads[e.to].push(e.from);
  const first = nodes.map(() => Infinity);
  nodes.forEach((_, i) => { for (const k of reads[i]) rank[i] = Math.max(rank[i], rank[k] + 1); for (const k of reads[i]) first[k] = Math.min(first[k], rank[i]); });
  nodes.forEach((_, i) => { if (!reads[i].length && Number.isFinite(first[i])) rank[i] = first[i] - 1; (rows[rank[i]] = rows[rank[i]] || []).push(i); });
  for (const row of rows) {
    const wish = i => reads[i].length ? reads[i].reduce((s, k) => s + column[k], 0) / reads[i].length : row.indexOf(i);
    row.map(i => [wish(i), i]).sort((a, b) => a[0] - b[0]).forEach(([, i], c) => { column[i] = c; });
  }
  return { rank, column, rows: rows.length, columns: max_of(rows.map(r => r.length), 1) };
}

// Edges go from a node to one behind it in the list. pick(node) is called on a click, Enter or Space.
function graph(into, o) {
  const W = o.width || 190, H = o.tall || 58, at = placed(o.nodes, o.edges), root = svg('svg', { width: at.columns * W + 20, height: at.rows * H + 20, viewBox: `0 0 ${at.columns * W + 20} ${at.rows * H + 20}` });
  const x = i => 10 + at.column[i] * W, y = i => 10 + at.rank[i] * H, high = H - 20;
  for (const e of o.edges) {
    const a = x(e.from) + W / 2 - 10, b = y(e.from) + high, c = x(e.to) + W / 2 - 10, d = y(e.to), bend = Math.max(9, (d - b) / 2);
    root.append(svg('path', { class: 'edge', 'stroke-width': e.wide || 1, d: `M${a} ${b}C${a} ${b + bend},${c} ${d - bend},${c} ${d}` }, e.tip ? tip(e.tip) : null));
  }
  let picked = null;
  o.nodes.forEach((n, i) => {
    const g = svg('g', { class: n.pick ? 'pick' : null, tabindex: n.pick ? 0 : null, role: n.pick ? 'button' : null }, tip(n.tip || n.title));
    g.append(svg('rect', { class: 'box', x: x(i), y: y(i), width: W - 20, height: high, rx: 4 }), svg('rect', { x: x(i), y: y(i), width: W - 20, height: high, rx: 4, style: `fill:rgba(var(--heat),${(.55 * (n.heat || 0)).toFixed(3)})` }));
    // A title, beside which something stands, is bold and wider.
    const letters = Math.floor((W - 30) / 6.8), cut = (t, beside) => { const most = beside ? Math.floor(.92 * (letters - beside.length - 1)) : letters; return t.length > most ? t.slice(0, most - 1) + '…' : t; };
    g.append(svg('text', { x: x(i) + 6, y: y(i) + 15, style: 'font-weight:600' }, cut(n.title, n.corner)));
    if (n.corner) g.append(svg('text', { x: x(i) + W - 26, y: y(i) + 15, 'text-anchor': 'end' }, n.corner));
    (n.lines || []).forEach((t, k) => g.append(svg('text', { class: 'soft', x: x(i) + 6, y: y(i) + 30 + 14 * k }, cut(t))));
    const choose = () => { if (picked) picked.classList.remove('picked'); picked = g; g.classList.add('picked'); n.pick(); };
    if (n.pick) { g.onclick = choose; g.onkeydown = e => { if (e.key !== 'Enter' && e.key !== ' ') return; e.preventDefault(); choose(); }; }
    root.append(g);
  });
  into.append(html('div', { class: 'scroll' }, root));
}
