// The page of two runs: what they were set to, what came out, and their curves in common charts.
// data: { runs: [report, report] }, as report_write.c has them, without samples.
const [a, b] = data.runs, of = (r, part) => new Map(r[part]), both = (x, y) => [...new Set([...x.keys(), ...y.keys()])];
const titles = a.title === b.title ? [a.title + ' (a)', b.title + ' (b)'] : [a.title, b.title];
const number = v => v === null || v === undefined ? '-' : Number(v.toPrecision(6)).toString(), label = name => name.replace(/_per_s$/, ' per second').replaceAll('_', ' ');
document.getElementById('note').textContent = titles.join('  and  ');

const fa = of(a, 'figures'), fb = of(b, 'figures'), known = v => v !== undefined && v !== null;
table(section('Results', '', true), ['result', titles[0], titles[1], 'difference'], both(fa, fb).map(k => [label(k), [fa.get(k) ?? 0, number(fa.get(k))], [fb.get(k) ?? 0, number(fb.get(k))],
  [known(fa.get(k)) && known(fb.get(k)) ? fb.get(k) - fa.get(k) : 0, known(fa.get(k)) && known(fb.get(k)) ? (fb.get(k) >= fa.get(k) ? '+' : '') + number(fb.get(k) - fa.get(k)) : '-']]));

function smooth(points) {
  const list = points.filter(p => p[1] !== null), keep = 1 - 1 / Math.max(1, list.length / 50);
  let sum = 0, weight = 0;
  return list.map(p => { sum = keep * sum + (1 - keep) * p[1]; weight = keep * weight + (1 - keep); return [p[0], sum / weight]; });
}
const ca = new Map(a.curves.map(c => [c.name, c])), cb = new Map(b.curves.map(c => [c.name, c]));
for (const name of both(ca, cb)) {
  const series = [ca, cb].map((c, i) => ({ name: titles[i], points: c.has(name) ? (c.get(name).points.length > 60 ? smooth(c.get(name).points) : c.get(name).points) : [] })).filter(s => s.points.length);
  const values = series.flatMap(s => s.points.map(p => p[1])).filter(v => v !== null), log = Math.min(...values) > 0 && Math.max(...values) / Math.min(...values) > 10 && !/accuracy|^lr$/.test(name);
  const long = series.some(s => s.points.length > 60);
  lines(section(label(name), (long ? 'Running means. ' : '') + (log ? 'On a logarithmic scale.' : '')), { x: { label: 'step', from: 0 }, y: { label: label(name), log: log || undefined }, series });
}

const sa = of(a, 'settings'), sb = of(b, 'settings'), differ = both(sa, sb).filter(k => sa.get(k) !== sb.get(k)), equal = both(sa, sb).filter(k => sa.get(k) === sb.get(k));
const s = section('Settings that differ', differ.length ? '' : 'None.', true);
if (differ.length) table(s, ['setting', titles[0], titles[1]], differ.map(k => [k, sa.get(k) ?? '-', sb.get(k) ?? '-']));
facts(section('Settings of both'), Object.fromEntries(equal.map(k => [k, sa.get(k)])));
const ma = of(a, 'machine'), mb = of(b, 'machine'), machines = section('Machines');
if (ma.size + mb.size) table(machines, ['', titles[0], titles[1]], both(ma, mb).map(k => [k, ma.get(k) ?? '-', mb.get(k) ?? '-']));
else machines.append(html('p', { class: 'note' }, 'A log does not say.'));
