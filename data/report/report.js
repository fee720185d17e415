'use strict';
// The page of a report: draws its charts, sorts its tables, and moves its timeline. It asks nothing of any network.

const $ = (id) => document.getElementById(id);
const { charts, timeline } = JSON.parse($('data').textContent);
const okabeIto = ['#0072B2', '#E69F00', '#009E73', '#CC79A7', '#D55E00', '#56B4E9'];
const views = new Map();
let seconds = timeline === null ? null : [0, timeline.endS];

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// Light, dark and print.

const root = document.documentElement;
function setTheme(theme) {
  root.dataset.theme = theme;
  $('theme').textContent = theme === 'dark' ? 'Light' : 'Dark';
}
setTheme(matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
$('theme').addEventListener('click', () => {
  setTheme(root.dataset.theme === 'dark' ? 'light' : 'dark');
  drawAll();
});
$('print').addEventListener('click', () => print());
let before = 'light';
addEventListener('beforeprint', () => {
  before = root.dataset.theme;
  setTheme('light');
  drawAll();
});
addEventListener('afterprint', () => {
  setTheme(before);
  drawAll();
});
$('copy').addEventListener('click', () => {
  const text = document.querySelector('#origin code').textContent;
  const told = (done) => ($('copy').textContent = done ? 'Copied' : 'Select it and copy');
  const copy = navigator.clipboard?.writeText(text);
  if (copy === undefined) told(false);
  else
    copy.then(
      () => told(true),
      () => told(false),
    );
});

// Charts.

function chartConfig() {
  const style = getComputedStyle(root);
  const color = (name) => style.getPropertyValue(name).trim();
  const [text, line] = [color('--muted'), color('--line')];
  return {
    axis: { labelColor: text, titleColor: text, gridColor: line, domainColor: line, tickColor: line },
    legend: { labelColor: text, titleColor: text },
    style: { cell: { stroke: null } },
  };
}
function draw({ id, spec, rows, isOfTimeline }) {
  const place = $(id);
  views.get(id)?.finalize();
  const view = new vega.View(vega.parse(spec, chartConfig()), { renderer: 'svg', container: place, hover: true });
  view.width(Math.max(240, place.clientWidth - 4)).data('rows', rows);
  if (isOfTimeline) view.signal('seconds', seconds);
  views.set(id, view);
  // a legend of several rows is known by its height only when it was drawn once
  view
    .runAsync()
    .then(() => view.resize().runAsync())
    .catch((error) => console.error(error));
}
function drawAll() {
  for (const chart of charts) draw(chart);
  drawRequests();
}
let width = document.body.clientWidth;
addEventListener('resize', () => {
  if (document.body.clientWidth === width) return;
  width = document.body.clientWidth;
  drawAll();
});

// Tables: a click on a head sorts by it.

for (const table of document.querySelectorAll('table.sortable')) {
  table.querySelectorAll('th').forEach((head, column) => {
    let isUp = false;
    head.addEventListener('click', () => {
      isUp = !isUp;
      const valueOf = (row) => {
        const cell = row.cells[column];
        return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
      };
      const body = table.tBodies[0];
      const sign = isUp ? 1 : -1;
      const sorted = [...body.rows].sort((a, b) => {
        const [x, y] = [valueOf(a), valueOf(b)];
        return sign * (typeof x === 'number' && typeof y === 'number' ? x - y : String(x).localeCompare(String(y)));
      });
      body.append(...sorted);
    });
  });
}

// The timeline: all of its charts show the same seconds.

function durationText(ms) {
  if (ms < 0) return '-';
  if (ms < 1000) return `${ms < 10 ? Number(ms.toFixed(2)) : Math.round(ms)} ms`;
  return ms < 120_000 ? `${(ms / 1000).toFixed(2)} s` : `${(ms / 60_000).toFixed(1)} min`;
}
function show(from, to) {
  const least = Math.max(timeline.endS / 1e6, 1e-5);
  const length = Math.min(Math.max(to - from, least), timeline.endS);
  const start = Math.min(Math.max(0, from), timeline.endS - length);
  seconds = [start, start + length];
  $('range').textContent = `${start.toFixed(3)} s to ${(start + length).toFixed(3)} s`;
  document.body.dataset.seconds = seconds.join(' ');
  for (const { id, isOfTimeline } of charts) {
    if (isOfTimeline) views.get(id)?.signal('seconds', seconds).runAsync();
  }
  drawRequests();
}
function zoom(factor) {
  const middle = (seconds[0] + seconds[1]) / 2;
  const half = ((seconds[1] - seconds[0]) * factor) / 2;
  show(middle - half, middle + half);
}
function move(share) {
  const by = (seconds[1] - seconds[0]) * share;
  show(seconds[0] + by, seconds[1] + by);
}

/** A drag over a chart zooms to it; a double click shows the whole run. */
function followDrags(place, secondsAt) {
  let from;
  let mark;
  const at = (event) => event.clientX - place.getBoundingClientRect().left;
  place.addEventListener('pointerdown', (event) => {
    from = at(event);
    mark = make('div', { class: 'select' });
    place.append(mark);
  });
  place.addEventListener('pointermove', (event) => {
    if (from === undefined) return;
    mark.style.left = `${Math.min(from, at(event))}px`;
    mark.style.width = `${Math.abs(at(event) - from)}px`;
  });
  const end = (event) => {
    if (from === undefined) return;
    const to = at(event);
    const began = from;
    from = undefined;
    mark.remove();
    if (Math.abs(to - began) > 5) show(secondsAt(Math.min(began, to)), secondsAt(Math.max(began, to)));
  };
  place.addEventListener('pointerup', end);
  place.addEventListener('pointerleave', end);
  place.addEventListener('dblclick', () => show(0, timeline.endS));
}

// Requests: as bars over time, and in a table.

const LEFT = 56;
const BARS_MOST = 60;
const BAR = 9;
// pixels of the axis below the bars, and between its numbers
const AXIS = 18;
const TICK = 110;
// fewer parts than three: the last ones
const partColours = [okabeIto[1], okabeIto[0], okabeIto[2]].slice(timeline === null ? 0 : -timeline.parts.length);
const partOpacities = [0.9, 1, 0.75];
let chosen = -1;
function requestEnd(i) {
  const { endMs, firstMs, joinedMs } = timeline;
  return Math.max(0, endMs[i], firstMs[i], joinedMs[i]);
}
function inView() {
  const found = [];
  for (let i = 0; i < timeline.ids.length; i++) {
    const begin = timeline.arrivalS[i];
    if (begin <= seconds[1] && begin + requestEnd(i) / 1000 >= seconds[0]) found.push(i);
  }
  return found;
}
function svg(tag, attributes, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
/** Seconds below the bars, at round numbers: about one each TICK pixels. */
function timeAxis(x, foot) {
  const [from, to] = seconds;
  const least = ((to - from) * TICK) / Math.max(TICK, x(to) - x(from));
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= least) ?? 10 * power;
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const axis = svg('g', { class: 'axis', 'font-size': 10, fill: 'currentColor', 'fill-opacity': 0.7 });
  for (let n = Math.ceil(from / step - 1e-9); n * step <= to + step * 1e-9; n++) {
    const at = x(n * step);
    axis.append(
      svg('line', { x1: at, x2: at, y1: 0, y2: foot + 3, stroke: 'currentColor', 'stroke-opacity': 0.15 }),
      svg('text', { x: at, y: foot + 13, 'text-anchor': 'middle' }, `${(n * step).toFixed(digits)} s`),
    );
  }
  return axis;
}
function drawRequests() {
  const place = $('gantt');
  if (place === null) return;
  const all = inView();
  const step = Math.max(1, all.length / BARS_MOST);
  const shown = [];
  for (let i = 0; i < all.length; i += step) shown.push(all[Math.floor(i)]);
  if (chosen !== -1 && all.includes(chosen) && !shown.includes(chosen)) shown.push(chosen);
  shown.sort((a, b) => timeline.arrivalS[a] - timeline.arrivalS[b]);
  const across = Math.max(240, place.clientWidth - 4);
  const scale = (across - LEFT - 10) / (seconds[1] - seconds[0]);
  const x = (s) => LEFT + Math.min(Math.max((s - seconds[0]) * scale, 0), across - LEFT - 10);
  const bars = shown.map((i, row) => {
    const begin = timeline.arrivalS[i];
    const ends = [timeline.joinedMs, timeline.firstMs, timeline.endMs].slice(-timeline.parts.length);
    const parts = ends.map((end, part) => [part === 0 ? 0 : ends[part - 1][i], end[i], partColours[part], partOpacities[part]]);
    const rects = [];
    let last = 0;
    for (const [from, to, fill, opacity] of parts) {
      if (to < 0) continue;
      const start = Math.max(from, last);
      const left = x(begin + start / 1000);
      rects.push(svg('rect', { x: left, y: row * BAR + 1, width: Math.max(2, x(begin + to / 1000) - left), height: BAR - 2, fill, opacity }));
      last = to;
    }
    const group = svg('g', { 'data-request': timeline.ids[i], style: 'cursor: pointer' }, svg('title', {}, storyOf(i).join('\n')), ...rects);
    if (i === chosen) group.append(svg('rect', { x: LEFT - 4, y: row * BAR, width: across - LEFT, height: BAR, fill: 'none', stroke: okabeIto[4] }));
    group.addEventListener('click', () => choose(i));
    return group;
  });
  const foot = Math.max(1, shown.length) * BAR + 4;
  const height = foot + AXIS;
  const picture = svg('svg', { width: across, height, viewBox: `0 0 ${across} ${height}` }, timeAxis(x, foot), ...bars);
  const legend = make('p', { class: 'note' });
  timeline.parts.forEach((name, part) => {
    const key = make('span', {});
    key.style.cssText = `display:inline-block;width:10px;height:10px;background:${partColours[part]};margin:0 5px 0 12px;border-radius:2px`;
    legend.append(key, name);
  });
  if (shown.length < all.length) legend.append(` (${shown.length} of ${all.length} ${timeline.of}s in view)`);
  place.replaceChildren(picture, legend);
  fillTable(all);
}
function storyOf(i) {
  const { ids, arrivalS, joinedMs, firstMs, endMs, prompt, output, places, place, statuses, status, notes } = timeline;
  const where = places[place[i]];
  const asked = prompt[i] > 0 ? ` with ${prompt[i]} prompt tokens` : '';
  const lines = [`${ids[i]}: ${timeline.of === 'request' ? 'came' : 'began'} at ${arrivalS[i].toFixed(3)} s${asked}`];
  if (joinedMs[i] >= 0) lines.push(`joined the batch of ${where} after ${durationText(joinedMs[i])}`);
  if (firstMs[i] >= 0) lines.push(`first token after ${durationText(firstMs[i])}`);
  if (endMs[i] >= 0) lines.push(`ended after ${durationText(endMs[i])}${output[i] > 0 ? ` with ${output[i]} tokens` : ''}: ${statuses[status[i]]}`);
  else lines.push(`${statuses[status[i]]}`);
  if (notes[i] !== undefined) lines.push(notes[i]);
  return lines;
}
const TABLE_MOST = 200;
function fillTable(all) {
  const { ids, arrivalS, joinedMs, firstMs, endMs, prompt, output, places, place, statuses, status } = timeline;
  const find = $('find').value.trim();
  const order = $('order').value;
  const wanted = find === '' ? all : ids.flatMap((id, i) => (id.includes(find) ? [i] : []));
  const endless = (ms) => (ms < 0 ? Number.POSITIVE_INFINITY : ms);
  const by = {
    slow: (a, b) => endless(endMs[b]) - endless(endMs[a]) || a - b,
    wait: (a, b) => endless(firstMs[b]) - endless(firstMs[a]) || a - b,
    time: (a, b) => arrivalS[a] - arrivalS[b],
  };
  const sorted = [...wanted].sort((a, b) => by[order](a, b) || a - b).slice(0, TABLE_MOST);
  const rows = sorted.map((i) => {
    const all = {
      id: [ids[i]],
      arrival: [`${arrivalS[i].toFixed(3)} s`, 'number'],
      joined: [durationText(joinedMs[i]), 'number'],
      first: [durationText(firstMs[i]), 'number'],
      end: [durationText(endMs[i]), 'number'],
      prompt: [String(prompt[i]), 'number'],
      output: [String(output[i]), 'number'],
      place: [places[place[i]]],
      status: [statuses[status[i]]],
    };
    const cells = timeline.columns.map((key) => all[key]);
    const row = make('tr', { tabindex: '0', 'data-request': ids[i] }, ...cells.map(([text, kind]) => make('td', kind === undefined ? {} : { class: kind }, text)));
    if (i === chosen) row.classList.add('chosen');
    row.addEventListener('click', () => choose(i));
    row.addEventListener('keydown', (event) => {
      if (event.key === 'Enter') choose(i);
    });
    return row;
  });
  $('requests').tBodies[0].replaceChildren(...rows);
}
function choose(i) {
  chosen = i;
  const [title, ...rest] = storyOf(i);
  const back = make('button', { type: 'button', id: 'unchoose' }, 'Whole run');
  back.addEventListener('click', () => {
    chosen = -1;
    $('story').hidden = true;
    show(0, timeline.endS);
  });
  $('story').replaceChildren(make('b', {}, title), make('ol', {}, ...rest.map((line) => make('li', {}, line))), back);
  $('story').hidden = false;
  const begin = timeline.arrivalS[i];
  const length = Math.max(requestEnd(i) / 1000, timeline.endS / 1e4);
  show(begin - 0.15 * length, begin + 1.15 * length);
}

drawAll();
if (timeline !== null) {
  for (const { id, isOfTimeline } of charts) {
    if (!isOfTimeline) continue;
    followDrags($(id), (pixel) => {
      const view = views.get(id);
      return view.scale('x').invert(pixel - view.origin()[0]);
    });
  }
  const gantt = $('gantt');
  if (gantt !== null) {
    followDrags(gantt, (pixel) => {
      const across = Math.max(240, gantt.clientWidth - 4) - LEFT - 10;
      return seconds[0] + ((pixel - LEFT) / across) * (seconds[1] - seconds[0]);
    });
    $('find').addEventListener('input', () => fillTable(inView()));
    $('order').addEventListener('change', () => fillTable(inView()));
  }
  $('whole').addEventListener('click', () => show(0, timeline.endS));
  $('closer').addEventListener('click', () => zoom(0.5));
  $('wider').addEventListener('click', () => zoom(2));
  $('earlier').addEventListener('click', () => move(-0.5));
  $('later').addEventListener('click', () => move(0.5));
  show(0, timeline.endS);
}
document.body.dataset.ready = 'yes';
