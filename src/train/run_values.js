// What the pages of one run and of two share: how values are named and shown, and how curves are.
// Whole numbers are shown whole: of 123457 items five digits would be another number.
const number = v => v === null || v === undefined ? '-' : Number.isInteger(v) ? String(v) : Math.abs(v) >= 1e5 ? String(Math.round(v)) : Number(v.toPrecision(5)).toString();
// A share is from 0 to 1, and shown as percent. A value above 1 is none, whatever its name.
const is_share = (name, most) => /accuracy|top5/.test(name) && !(most > 1), is_bytes = name => name === 'memory_bytes', is_smooth = name => name === 'lr' || name === 'samples_per_s';
const shown_as = (name, v) => v === null || v === undefined ? '-' : is_share(name, v) ? (100 * v).toFixed(2) + ' %' : is_bytes(name) ? bytes(v) : number(v);
const words = new Map(Object.entries({ lr: 'learning rate', grad_norm: 'gradient norm', samples_per_s: 'samples per second', memory_bytes: 'memory', test_r2: 'test R²', r2: 'R²' }));
const label = name => words.get(name) || name.replaceAll('_', ' '), titled = name => label(name).slice(0, 1).toUpperCase() + label(name).slice(1);

// A curve of single steps is noisy: the mean over a fiftieth of it around each point says where it goes. At the end, where people look, it is
// the mean of the last ones; the beginning, which may be steep, keeps its height.
function smooth(points) {
  const list = points.filter(p => p[1] !== null), half = Math.max(2, Math.floor(list.length / 100)), sums = [0];
  list.forEach((p, i) => sums.push(sums[i] + p[1]));
  return list.map((p, i) => { const before = Math.min(half, i), after = Math.min(before, list.length - 1 - i); return [p[0], (sums[i + after + 1] - sums[i - before]) / (before + after + 1)]; });
}
const is_noisy = c => c.points.length > 60 && !is_smooth(c.name);

// The axis of a value: logarithmic if its values differ by more than a factor of 10, else from 0 if all are above it.
function axis_of(name, values) {
  const known = values.filter(v => v !== null), low = min_of(known, Infinity), high = max_of(known, -Infinity);
  if (is_share(name, high)) return { label: label(name), text: v => Number((100 * v).toPrecision(6)) + ' %', from: low < high / 2 ? 0 : undefined, to: 1 };
  if (low > 0 && high / low > 10 && !is_smooth(name)) return { label: label(name), log: true };
  return { label: label(name), text: name === 'samples_per_s' ? count : undefined, from: low > 0 ? 0 : undefined };
}
const scale_note = axis => axis.log ? 'On a logarithmic scale.' : '';
