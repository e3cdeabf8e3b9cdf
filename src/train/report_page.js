// The page of a run: results, curves, samples, the confusion matrix, settings. report_write.c says what data has.
const curves = new Map(data.curves.map(c => [c.name, c])), settings = Object.fromEntries(data.settings), figures = Object.fromEntries(data.figures);
const names = { loss: 'training', test_loss: 'test', accuracy: 'training', test_accuracy: 'test' };
const number = v => v === null ? '-' : Number(v.toPrecision(5)).toString();
const share = v => v === null ? '-' : (100 * v).toFixed(2) + ' %';
const shown_as = (name, v) => is_share(name) ? share(v) : /bytes$/.test(name) && !/per/.test(name) ? bytes(v) : number(v);
const is_share = name => /accuracy|top5/.test(name);
const label = name => name.replace(/_per_s$/, ' per second').replace(/^memory_bytes$/, 'memory').replaceAll('_', ' ');

// A curve of single steps is noisy: a running mean over a fiftieth of it says where it goes.
function smooth(points) {
  const keep = 1 - 1 / Math.max(1, points.length / 50);
  let sum = 0, weight = 0;
  return points.filter(p => p[1] !== null).map(p => { sum = keep * sum + (1 - keep) * p[1]; weight = keep * weight + (1 - keep); return [p[0], sum / weight]; });
}
const steps = Math.max(0, ...data.curves.flatMap(c => c.points.slice(-1).map(p => p[0])));
document.getElementById('note').textContent = [`${steps} steps`, figures.seconds ? `in ${figures.seconds.toFixed(1)} s` : '', (data.machine.find(m => m[0] === 'device') || ['', ''])[1]].filter(s => s).join(', ');

if (data.figures.length) facts(section('Results'), Object.fromEntries(data.figures.map(([k, v]) => [label(k), shown_as(k, v)])));

// One chart for a value of training and that of the test, if there are both.
function chart(title, note, train, test, axis) {
  const a = curves.get(train), b = curves.get(test), series = [];
  if (a && a.points.length > 1) {
    const many = a.points.length > 60 && train !== 'lr' && train !== 'samples_per_s';  // which are smooth
    if (many) series.push({ name: a.stride > 1 ? `mean of ${a.stride} steps` : 'each step', points: a.points, faint: true });
    series.push({ name: many ? 'running mean' : names[train] || label(train), points: many ? smooth(a.points) : a.points });
  }
  if (b && b.points.length) series.push({ name: 'test', points: b.points });
  if (series.length) lines(section(title, note), { x: { label: 'step', from: 0 }, y: axis, series });
}
const loss = curves.get('loss'), low = loss ? Math.min(...loss.points.map(p => p[1]).filter(v => v !== null)) : 0, high = loss ? Math.max(...loss.points.map(p => p[1])) : 0;
const log = low > 0 && high / low > 10;
chart('Loss', log ? 'On a logarithmic scale.' : '', 'loss', 'test_loss', log ? { label: 'loss', log } : { label: 'loss', from: low > 0 ? 0 : undefined });
chart('Accuracy', 'Of the training, every tenth batch is measured.', 'accuracy', 'test_accuracy', { label: 'accuracy', text: v => (100 * v).toFixed(0) + ' %', to: 1 });
chart('Gradient norm', 'Of all gradients together, before clipping.', 'grad_norm', '', { label: 'norm', log: true });
chart('Learning rate', '', 'lr', '', { label: 'rate', from: 0 });
chart('Speed', '', 'samples_per_s', '', { label: 'samples per second', text: count, from: 0 });
for (const c of data.curves) if (!['loss', 'accuracy', 'grad_norm', 'lr', 'samples_per_s', 'test_loss', 'test_accuracy'].includes(c.name)) chart(label(c.name), '', c.name, '', { label: label(c.name) });

function samples(title, note, list) {
  if (!list.length) return;
  const s = section(title, note, true), box = html('div', { class: 'pictures' });
  for (const x of list) {
    const wrong = x.truth !== undefined && x.prediction !== undefined && x.truth !== x.prediction;
    const said = x.prediction === undefined ? '' : (wrong ? '✗ ' : x.truth === undefined ? '' : '✓ ') + x.prediction + (x.chance ? ` (${(100 * x.chance).toFixed(0)} %)` : '');
    const caption = html('figcaption', {}, html(wrong ? 'b' : 'span', {}, said), wrong ? html('br') : '', wrong ? `it is ${x.truth}` : '');
    box.append(html('figure', { class: wrong ? 'wrong' : null }, x.image ? html('img', { src: x.image, alt: `a sample of ${x.truth}`, width: 84, height: 84, style: 'object-fit:contain' }) : html('pre', {}, x.text), caption));
  }
  s.append(box);
}
samples('Samples', 'What the network says of the first items of the test, and of some that it gets wrong (✗).', data.samples);

// Rows are what an item is, columns what it was taken for.
function matrix(c) {
  const n = c.names.length, sums = c.counts.map(r => r.reduce((a, b) => a + b, 0)), right = c.counts.reduce((a, r, i) => a + r[i], 0), all = sums.reduce((a, b) => a + b, 0);
  const s = section('Confusion matrix', `Rows are classes, columns what they were taken for: ${right} of ${all} are right. The darker a cell, the larger its part of the row.`, n > 14);
  if (n <= 30) {
    const head = html('tr', {}, html('th', {}, ''), ...c.names.map(x => html('th', { class: 'number' }, x)), html('th', { class: 'number', title: 'of this class, how many are right' }, 'right'));
    const rows = c.counts.map((r, i) => html('tr', {}, html('th', {}, c.names[i]), ...r.map((v, k) => html('td', { class: 'number', title: `${c.names[i]} taken for ${c.names[k]}: ${v}`,
      style: `background:rgba(${i === k ? '38,140,90' : 'var(--heat)'},${(.75 * v / (sums[i] || 1)).toFixed(3)});padding:3px 7px` }, i === k ? html('b', {}, v) : v || '·')), html('td', { class: 'number', style: 'padding-left:10px' }, sums[i] ? percent(r[i] / sums[i]) : '-')));
    s.append(html('div', { class: 'scroll' }, html('table', {}, html('thead', {}, head), html('tbody', {}, ...rows))));
  }
  const pairs = c.counts.flatMap((r, i) => r.map((v, k) => [c.names[i], c.names[k], v])).filter(p => p[0] !== p[1] && p[2]).sort((a, b) => b[2] - a[2]).slice(0, 10);
  if (pairs.length) { const t = n > 30 ? s : section('Most frequent mistakes'); table(t, ['class', 'taken for', 'items'], pairs); }
}
if (data.confusion) matrix(data.confusion);
facts(section('Settings'), settings);
facts(section('Machine'), Object.fromEntries(data.machine));
