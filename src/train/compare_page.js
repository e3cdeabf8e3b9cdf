// The page of two runs: what they were set to, what came out, and their curves in common charts.
// data: { runs: [report, report] }, as report_write.c has them, without samples.
const [a, b] = data.runs, of = (r, part) => new Map(r[part]), both = (x, y) => [...new Set([...x.keys(), ...y.keys()])];
const titles = a.title === b.title ? [a.title + ' (a)', b.title + ' (b)'] : [a.title, b.title];
document.getElementById('note').textContent = titles.join('  and  ');

const fa = of(a, 'figures'), fb = of(b, 'figures'), known = k => Number.isFinite(fa.get(k)) && Number.isFinite(fb.get(k));
const difference = k => (fb.get(k) >= fa.get(k) ? '+' : '-') + shown_as(k, Math.abs(fb.get(k) - fa.get(k)));
table(section('Results'), ['result', titles[0], titles[1], 'difference'], both(fa, fb).map(k => [label(k), [fa.get(k) ?? 0, shown_as(k, fa.get(k))], [fb.get(k) ?? 0, shown_as(k, fb.get(k))],
  [known(k) ? fb.get(k) - fa.get(k) : 0, known(k) ? difference(k) : '-']]));
const sa = of(a, 'settings'), sb = of(b, 'settings'), differ = both(sa, sb).filter(k => sa.get(k) !== sb.get(k)), equal = both(sa, sb).filter(k => sa.get(k) === sb.get(k));
const s = section('Settings that differ', differ.length ? '' : 'None.');
if (differ.length) table(s, ['setting', titles[0], titles[1]], differ.map(k => [k, sa.get(k) ?? '-', sb.get(k) ?? '-']));

const ca = new Map(a.curves.map(c => [c.name, c])), cb = new Map(b.curves.map(c => [c.name, c]));
for (const name of both(ca, cb)) {
  const noisy = [ca, cb].some(c => c.has(name) && is_noisy(c.get(name)));
  const series = [ca, cb].map((c, i) => ({ name: titles[i], points: !c.has(name) ? [] : noisy ? smooth(c.get(name).points) : c.get(name).points })).filter(x => x.points.length);
  const axis = axis_of(name, series.flatMap(x => x.points.map(p => p[1])));
  lines(section(titled(name), [noisy ? 'Running means.' : '', scale_note(axis)].filter(x => x).join(' ')), { x: { label: 'step', from: 0 }, y: axis, series });
}

facts(section('Settings of both'), equal.map(k => [k, sa.get(k)]));
const ma = of(a, 'machine'), mb = of(b, 'machine'), machines = section('Machines');
if (ma.size + mb.size) table(machines, ['', titles[0], titles[1]], both(ma, mb).map(k => [k, ma.get(k) ?? '-', mb.get(k) ?? '-']));
else machines.append(html('p', { class: 'note' }, 'A log does not say.'));
