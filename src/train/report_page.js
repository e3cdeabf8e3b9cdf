// The page of a run: results, curves, samples, the confusion matrix, settings. report_write.c says what data has.
const curves = new Map(data.curves.map(c => [c.name, c])), figures = Object.fromEntries(data.figures), drawn = new Set();
const steps = Math.max(0, ...data.curves.flatMap(c => c.points.slice(-1).map(p => p[0])));
const ended = (data.settings.find(s => s[0] === 'ended') || ['', 'complete'])[1];  // as the tool says it
document.getElementById('note').textContent = [`${steps} step${steps === 1 ? '' : 's'}`, figures.seconds ? `in ${figures.seconds.toFixed(1)} s` : '', (data.machine.find(m => m[0] === 'device') || ['', ''])[1], ended === 'complete' ? '' : ended].filter(s => s).join(', ');
if (data.figures.length) facts(section('Results'), data.figures.map(([k, v]) => [label(k), shown_as(k, v)]));

// A point that stands for several steps goes from the lowest of them to the highest.
const range_of = c => c.stride > 1 ? c.points.flatMap(p => [[p[0], p[2]], [p[0], p[3]]]) : c.points;

// One chart for a value of training and that of the test, if there are both.
function chart(name, note) {
  const train = curves.get(name), test = curves.get('test_' + name), series = [];
  drawn.add(name);
  if (!train && !test) return;
  drawn.add('test_' + name);
  if (train && is_noisy(train)) series.push({ name: train.stride > 1 ? `lowest and highest of ${train.stride} steps` : 'each step', points: range_of(train), faint: true }, { name: 'running mean', points: smooth(train.points) });
  else if (train && train.points.length) series.push({ name: 'training', points: train.points });
  if (test && test.points.length) series.push({ name: 'test', points: test.points });
  const axis = axis_of(name, series.flatMap(s => s.points.map(p => p[1])));
  lines(section(titled(train ? name : 'test_' + name), [note, scale_note(axis)].filter(s => s).join(' ')), { x: { label: 'step', from: 0 }, y: axis, series });
}
chart('loss');
// How many steps the values of a curve are apart.
const apart = name => { const c = curves.get(name), p = c ? c.points : []; return p.length > 1 ? (p[1][0] - p[0][0]) / c.stride : NaN; }, skipped = Math.round(apart('accuracy') / apart('loss'));
chart('accuracy', skipped > 1 ? `Of the training, one batch of ${skipped} is measured.` : '');
chart('grad_norm');
chart('lr');
chart('samples_per_s');
for (const name of [...curves.keys()].map(k => k.replace(/^test_(?=.)/, ''))) if (!drawn.has(name)) chart(name);

const is_wrong = x => x.truth !== undefined && x.prediction !== undefined && x.truth !== x.prediction;
function samples(title, note, list) {
  if (!list.length) return;
  const s = section(title, note, true), box = html('div', { class: 'pictures' });
  for (const x of list) {
    const wrong = is_wrong(x);
    const said = x.prediction === undefined ? '' : (wrong ? '✗ ' : x.truth === undefined ? '' : '✓ ') + x.prediction + (x.chance ? ` (${(100 * x.chance).toFixed(0)} %)` : '');
    const caption = html('figcaption', {}, html(wrong ? 'b' : 'span', {}, said), wrong ? html('br') : '', wrong ? `it is ${x.truth}` : '');
    box.append(html('figure', { class: wrong ? 'wrong' : null }, x.image ? html('img', { src: x.image, alt: `a sample of ${x.truth}`, width: 84, height: 84, style: 'object-fit:contain' }) : html('pre', {}, x.text), caption));
  }
  s.append(box);
}
samples('Samples', 'What the network says of items of the test' + (data.samples.some(is_wrong) ? '; ✗ is wrong.' : '.'), data.samples);

// A name that fits into a table: its beginning and its end, in which names of one data set differ. All of it where the mouse is.
const short = (t, most = 24) => t.length <= most ? t : html('span', { title: t }, t.slice(0, most / 2) + '…' + t.slice(1 - most / 2));

// Rows are what an item is, columns what it was taken for.
function matrix(c) {
  const n = c.names.length, sums = c.counts.map(r => r.reduce((a, b) => a + b, 0)), right = c.counts.reduce((a, r, i) => a + r[i], 0), all = sums.reduce((a, b) => a + b, 0), worst = max_of(c.counts.flatMap((r, i) => r.filter((_, k) => k !== i)), 1);
  const s = section('Confusion matrix', `Rows are classes, columns what they were taken for: ${right} of ${all} are right. Numbers on the diagonal are right; of the others, the most frequent have the strongest colour.`, n > 14);
  if (n <= 30) {
    const head = html('tr', {}, html('th', {}, ''), ...c.names.map(x => html('th', { class: 'number' }, short(x, 14))), html('th', { class: 'number', title: 'of this class, how many are right' }, 'right'));
    const rows = c.counts.map((r, i) => html('tr', {}, html('th', {}, short(c.names[i])), ...r.map((v, k) => html('td', { class: 'number', title: `${c.names[i]} taken for ${c.names[k]}: ${v}`,
      style: `background:rgba(${i === k ? '38,140,90' : 'var(--heat)'},${(.75 * v / (i === k ? sums[i] || 1 : worst)).toFixed(3)});padding:3px 7px` }, i === k ? html('b', {}, v) : v || '·')), html('td', { class: 'number', style: 'padding-left:10px' }, sums[i] ? percent(r[i] / sums[i]) : '-')));
    s.append(html('div', { class: 'scroll' }, html('table', {}, html('thead', {}, head), html('tbody', {}, ...rows))));
  }
  const pairs = c.counts.flatMap((r, i) => r.map((v, k) => [c.names[i], c.names[k], i === k ? 0 : v])).filter(p => p[2]).sort((a, b) => b[2] - a[2]).slice(0, 10);
  if (pairs.length) { const t = n > 30 ? s : section('Most frequent mistakes'); table(t, ['class', 'taken for', 'items'], pairs.map(p => [[p[0], short(p[0])], [p[1], short(p[1])], p[2]])); }
}
if (data.confusion) matrix(data.confusion);
if (data.settings.length) facts(section('Settings'), data.settings);
facts(section('Machine'), data.machine);
