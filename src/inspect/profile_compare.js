// The page of two profiles; profile_compare.c says what its data is.
const [a, b] = data.sides, ms = ns => (ns / 1e6).toFixed(3) + ' ms', ratio = (x, y) => x ? (y / x).toFixed(3) : '-', mean = s => s[0] ? s[1] / s[0] / 1e3 : NaN;
document.getElementById('note').textContent = `b takes ${ratio(a.time, b.time)} of the time of a, timed kernel by kernel` +
  [['a', a], ['b', b]].filter(([, s]) => s.all > s.kernels).map(([n, s]) => `; ${n} has the first ${s.kernels.toLocaleString('en')} of ${s.all.toLocaleString('en')} kernels`).join('');

table(section('Both', '', true), ['', 'file', 'device', 'kernels', 'time of kernels', 'time of the host', 'most memory'],
  [['a', a], ['b', b]].map(([n, s]) => [n, s.path, s.device, s.kernels, [s.time, ms(s.time)], [s.host, ms(s.host)], [s.peak, bytes(s.peak)]]));

// Bars to both sides of zero: what b gained to the left, what it lost to the right.
const differing = data.rows.filter(r => r.a[1] !== r.b[1]), worst = differing.slice(0, 25);
const differ = section('Where they differ', `b less a, in all${worst.length < differing.length ? `; the ${worst.length} largest differences of ${differing.length}` : ''}. Bars to the left: b is faster.`);
plot(differ, width => {
  const most = Math.max(...worst.map(r => Math.abs(r.b[1] - r.a[1])), 1), high = 22, half = Math.max(60, (width - 20) / 2 - 80), middle = width / 2, root = svg('svg', { width, height: Math.max(1, worst.length) * (high + 18) + 8, role: 'img' });
  root.append(svg('path', { class: 'axis', d: `M${middle} 0V${worst.length * (high + 18)}` }));
  worst.forEach((r, i) => {
    const d = r.b[1] - r.a[1], w = Math.max(1, Math.abs(d) / most * half), y = i * (high + 18), left = d < 0;
    root.append(svg('text', { class: 'over', x: middle, y: y + 12, 'text-anchor': 'middle' }, r.name.slice(0, Math.floor(width / 7))));
    root.append(svg('rect', { class: hue(left ? 2 : 1), x: left ? middle - w : middle, y: y + 17, width: w, height: high - 6, style: 'fill:var(--c)' }, tip(`${r.name}\n${r.line}\n${ms(r.a[1])} → ${ms(r.b[1])}`)));
    root.append(svg('text', { x: left ? middle - w - 5 : middle + w + 5, y: y + 29, 'text-anchor': left ? 'end' : 'start' }, (d > 0 ? '+' : '−') + ms(Math.abs(d))));
  });
  return root;
});

const both = data.rows.filter(r => r.a[1] && r.b[1]), times = both.flatMap(r => [mean(r.a), mean(r.b)]), low = min_of(times, Infinity) / 1.3, high = max_of(times, -Infinity) * 1.3;
const cloud = section('The kernels of both', both.length < data.rows.length ? `Mean time of a run. ${data.rows.length - both.length} are in one of them alone: see the table.` : 'Mean time of a run.');
if (both.length) scatter(cloud, { height: 360, x: { label: 'µs in a', log: true, from: low, to: high, text: count }, y: { label: 'µs in b', log: true, from: low, to: high, text: count },
  series: [['about equal', r => mean(r.b) >= mean(r.a) * .95 && mean(r.b) <= mean(r.a) * 1.05], ['b is slower', r => mean(r.b) > mean(r.a) * 1.05], ['b is faster', r => mean(r.b) < mean(r.a) * .95]]
    .map(([name, is]) => ({ name, points: both.filter(is).map(r => [mean(r.a), mean(r.b), `${r.name}\n${r.line}\n${time(mean(r.a))} → ${time(mean(r.b))}`]) })),
  lines: [{ name: 'equal', points: [[low, low], [high, high]] }] });

const digits = (v, n) => [Number.isFinite(v) ? v : -1, Number.isFinite(v) ? v.toFixed(n) : '-'];
table(section('Kernels', 'By the size of the difference.', true), ['a ms', 'b ms', 'b/a', 'a count', 'b count', 'a mean µs', 'b mean µs', 'kernel', 'line'],
  data.rows.map(r => [digits(r.a[1] / 1e6, 3), digits(r.b[1] / 1e6, 3), r.a[1] && r.b[1] ? digits(r.b[1] / r.a[1], 3) : [r.a[1] ? 0 : Infinity, r.a[1] ? 'gone' : 'new'], r.a[0], r.b[0], digits(mean(r.a), 2), digits(mean(r.b), 2), r.name, r.line]));
