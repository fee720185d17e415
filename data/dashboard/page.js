// The dashboard's page. It gets frames, from a stream or all at once, and shows the moment that is chosen. Everything that
// comes from outside is set as text, never as HTML.
'use strict';

const $ = (id) => document.getElementById(id);
const state = { head: null, frames: [], at: -1, paused: false, chosen: null, charts: {}, timer: null, best: {} };

// Quantities.

const binary = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
function three(value) {
  if (value >= 100) return value.toFixed(0);
  return value.toFixed(value >= 10 ? 1 : 2).replace(/\.?0+$/, '') || '0';
}
function bytes(value) {
  let unit = 0;
  let left = value;
  while (left >= 1024 && unit < binary.length - 1) {
    left /= 1024;
    unit++;
  }
  return `${three(left)} ${binary[unit]}`;
}
function rate(value) {
  if (value >= 1e9) return `${three(value / 1e9)} GB/s`;
  if (value >= 1e6) return `${three(value / 1e6)} MB/s`;
  return `${three(value / 1e3)} kB/s`;
}
function seconds(value) {
  if (value < 0) return '-';
  if (value === 0) return '0 s';
  if (value < 1e-3) return `${three(value * 1e6)} us`;
  if (value < 1) return `${three(value * 1e3)} ms`;
  if (value < 60) return `${three(value)} s`;
  return value < 3600 ? `${Math.floor(value / 60)} min ${Math.round(value % 60)} s` : `${three(value / 3600)} h`;
}
const count = (value) => String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, ',');
const percent = (value) => (Number.isFinite(value) ? `${(100 * value).toFixed(1)} %` : '-');

// Elements.

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === 'style') element.style.cssText = value;
    else if (value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined).map((child) => (child instanceof Node ? child : String(child))));
  return element;
}
function fill(parent, ...children) {
  parent.replaceChildren(...children);
}
/** Parts of a bar, each `[share, colour, title]`. */
function bar(parts, thin = false) {
  return make(
    'div',
    { class: thin ? 'bar thin' : 'bar' },
    ...parts.filter(([share]) => share > 0).map(([share, colour, title]) => make('i', { style: `width:${Math.min(100, 100 * share)}%;background:${colour}`, title })),
  );
}

// Frames and what lies between them.

const okabeIto = ['#0072B2', '#E69F00', '#009E73', '#CC79A7', '#D55E00', '#56B4E9'];
const tenantColours = ['#56B4E9', '#E69F00', '#009E73', '#CC79A7', '#D55E00', '#0072B2', '#8C6D31', '#7F7F7F'];
/** The same in every tier and moment: by the order in which tenants were met. */
const tenantsMet = new Map();
function tenantColour(name) {
  if (!tenantsMet.has(name)) tenantsMet.set(name, tenantColours[tenantsMet.size % tenantColours.length]);
  return tenantsMet.get(name);
}
const tierColour = (position) => okabeIto[position % okabeIto.length];

const shown = () => (state.at < 0 ? state.frames.length - 1 : Math.min(state.at, state.frames.length - 1));
/** The frame `back` seconds before the one at `index`, or the first. */
function before(index, back) {
  const { at } = state.frames[index];
  let found = index;
  while (found > 0 && at - state.frames[found].at < back) found--;
  return state.frames[found];
}
/** Over how long rates are taken: two seconds live, a fortieth of a log. */
function span() {
  if (state.head.mode === 'live') return 2;
  const { frames } = state;
  return Math.max(1e-6, (frames[frames.length - 1].at - frames[0].at) / 40);
}
const linkOf = (frame, from, to) => frame.links.find((link) => link.from === from && link.to === to);
function flow(now, then, from, to) {
  const link = linkOf(now, from, to);
  if (link === undefined) return 0;
  const old = linkOf(then, from, to);
  return now.at > then.at ? (link.bytes - (old === undefined ? 0 : old.bytes)) / (now.at - then.at) : 0;
}
const nameOf = (from, to) => {
  const { tiers } = state.head;
  return `${tiers[from]}To${tiers[to][0].toUpperCase()}${tiers[to].slice(1)}`;
};
/** The best rate of a link while it had something to carry, over at least 20 ms of that. */
function noteBest() {
  const { frames } = state;
  const now = frames[frames.length - 1];
  const then = before(frames.length - 1, span());
  for (const link of now.links) {
    const old = linkOf(then, link.from, link.to) ?? { bytes: 0, busySeconds: 0 };
    const busy = link.busySeconds - old.busySeconds;
    const name = nameOf(link.from, link.to);
    if (busy >= 0.02) state.best[name] = Math.max(state.best[name] ?? 0, (link.bytes - old.bytes) / busy);
    else if (state.best[name] === undefined && link.busySeconds > 0) state.best[name] = link.bytes / link.busySeconds;
  }
}
function findBest() {
  const { frames } = state;
  const all = frames.slice();
  state.best = {};
  for (let i = 1; i <= all.length; i++) {
    state.frames = all.slice(0, i);
    noteBest();
  }
  state.frames = all;
}

// The parts of the page.

function showHead() {
  const { head } = state;
  $('title').textContent = head.title;
  document.title = `${head.title} - tierkv`;
  $('mode').textContent = head.mode === 'live' ? 'live' : 'decision log';
  $('mode').className = head.mode === 'live' ? 'badge live' : 'badge';
  $('policy').textContent = `eviction: ${head.policy}`;
  $('note').textContent = head.note;
  $('note').hidden = head.note === '';
  $('pause').hidden = head.mode !== 'live';
  $('player').hidden = head.mode !== 'log';
  const [hot, warm] = head.temperatureSeconds;
  fill(
    $('tierLegend'),
    make('i', { style: 'background:var(--strong);margin-left:0' }), 'held by requests',
    make('i', { style: 'background:var(--hot)' }), `cached, used within ${hot} s`,
    make('i', { style: 'background:var(--warm)' }), `within ${warm} s`,
    make('i', { style: 'background:var(--cold)' }), 'longer ago',
  );
}

function showFigures(now, then) {
  const hits = (frame) => frame.tiers.reduce((sum, tier) => sum + tier.hits, 0);
  const all = hits(now) + now.misses;
  const top = now.tiers[0].hits;
  const lasted = now.at - then.at;
  const figures = [
    [percent(hits(now) / all), 'of blocks found'],
    [percent((hits(now) - top) / all), 'found below the fastest tier'],
    [count(now.running), state.head.mode === 'live' ? 'requests run' : 'sequences open'],
    [count(now.waiting), 'requests wait'],
    [count(now.ended), state.head.mode === 'live' ? 'requests ended' : 'sequences ended'],
    state.head.mode === 'live'
      ? [count(lasted > 0 ? (now.tokens - then.tokens) / lasted : 0), 'tokens a second']
      : [count(now.tiers.reduce((sum, tier) => sum + tier.evicted, 0)), 'blocks evicted'],
    [count(now.tiers.reduce((sum, tier) => sum + tier.returned, 0)), 'blocks came back too early'],
    [`${count(now.choseLoad)} / ${count(now.choseRecompute)}`, 'blocks loaded / recomputed'],
  ];
  fill($('figures'), ...figures.map(([value, text]) => make('div', { class: 'figure' }, make('b', {}, value), make('span', {}, text))));
}

function tierCard(tier, position) {
  const { capacity, resident, held, cached, leaving, blocks, temperatures, tenants } = tier;
  const known = tenants.reduce((sum, [, size]) => sum + size, 0);
  const moving = Math.max(0, resident - held - cached);
  const [hot, warm, cold] = temperatures;
  const parts = tenants.map(([name, size]) => [size / capacity, tenantColour(name), `${name}: ${bytes(size)}`]);
  if (resident - known > 0) parts.push([(resident - known) / capacity, 'var(--cold)', `others: ${bytes(resident - known)}`]);
  return make(
    'div',
    { class: 'tier', style: `--tier:${tierColour(position)}`, 'data-tier': state.head.tiers[position] },
    make('div', { class: 'line' }, make('span', { class: 'name' }, state.head.tiers[position]), make('span', {}, `${bytes(resident)} of ${bytes(capacity)}`)),
    bar([
      [held / capacity, 'var(--strong)', `held by requests: ${bytes(held)}`],
      [(cached * hot) / capacity, 'var(--hot)', `cached, hot: ${percent(hot)}`],
      [(cached * warm) / capacity, 'var(--warm)', `cached, warm: ${percent(warm)}`],
      [(cached * cold) / capacity, 'var(--cold)', `cached, cold: ${percent(cold)}`],
      [moving / capacity, 'var(--muted)', `on its way in, or written: ${bytes(moving)}`],
    ]),
    tenants.length > 0 ? bar(parts, true) : null,
    make(
      'div',
      { class: 'line small' },
      make('span', {}, `${count(blocks)} blocks${held > 0 ? `, ${bytes(held)} held` : ''}${leaving > 0 ? `, ${bytes(leaving)} leave` : ''}`),
    ),
    tenants.length > 0
      ? make('div', { class: 'small tenants' }, ...tenants.map(([name, size]) => make('span', { title: bytes(size) }, make('i', { class: 'key', style: `background:${tenantColour(name)}` }), name)))
      : null,
  );
}

function flowLine(now, then, from, to) {
  const value = flow(now, then, from, to);
  const name = nameOf(from, to);
  const given = state.head.limits[name];
  const limit = given ?? state.best[name] ?? 0;
  const arrow = from > to ? '\u2191' : '\u2193';
  const ends = `${state.head.tiers[from]}\u2192${state.head.tiers[to]}`;
  return make(
    'div',
    { class: value > 0 ? '' : 'idle', 'data-link': name, title: given === undefined ? 'the best that was seen of this link' : 'the measured limit of this link' },
    make('div', {}, `${arrow} ${ends} `, make('b', {}, value > 0 ? rate(value) : '0'), limit > 0 ? make('span', { class: 'muted' }, ` / ${rate(limit)}`) : null),
    make('div', { class: 'gauge' }, make('i', { style: `width:${limit > 0 ? Math.min(100, (100 * value) / limit) : 0}%` })),
  );
}

function showTiers(now, then) {
  const parts = [];
  const drawn = new Set();
  now.tiers.forEach((tier, position) => {
    parts.push(tierCard(tier, position));
    if (position + 1 === now.tiers.length) return;
    const links = [[position, position + 1], [position + 1, position]];
    for (const { from, to } of now.links) {
      if (Math.min(from, to) === position && Math.abs(from - to) > 1) links.push([from, to]);
    }
    for (const [from, to] of links) drawn.add(`${from}>${to}`);
    parts.push(make('div', { class: 'flow' }, ...links.map(([from, to]) => flowLine(now, then, from, to))));
  });
  fill($('tiers'), ...parts);
}

// Charts: each gets rows of { at, value, series }.

function window_() {
  const end = shown();
  const from = state.head.mode === 'live' ? Math.max(0, end - 300) : 0;
  return { frames: state.frames.slice(from, end + 1), offset: state.frames[0].at };
}
/** Calls `row` with each frame and the frame a span before it. */
function overTime(rows) {
  const { frames } = window_();
  const found = [];
  const back = span();
  const start = state.frames[0].at;
  let then = 0;
  for (let i = 1; i < frames.length; i++) {
    // of frames of one moment the last one stands for all
    if (frames[i + 1]?.at === frames[i].at) continue;
    while (then + 1 < i && frames[i].at - frames[then + 1].at >= back) then++;
    rows(frames[i], frames[then], (series, value) => found.push({ at: frames[i].at - start, value, series, rank: state.head.tiers.indexOf(series) }));
  }
  return found;
}
const chartRows = {
  hits: () =>
    overTime((now, then, add) => {
      const found = now.tiers.map((tier, position) => tier.hits - then.tiers[position].hits);
      const all = found.reduce((sum, each) => sum + each, 0) + now.misses - then.misses;
      state.head.tiers.forEach((name, position) => add(name, all === 0 ? 0 : found[position] / all));
    }),
  flows: () =>
    overTime((now, then, add) => {
      for (const { from, to } of now.links) add(`${state.head.tiers[from]} \u2192 ${state.head.tiers[to]}`, flow(now, then, from, to));
    }),
  gaps: () => {
    const now = state.frames[shown()];
    const { gapBounds } = state.head;
    return now.tiers.flatMap((tier, position) =>
      tier.gaps.map((value, i) => ({ bucket: gapBounds[i] === undefined ? 'more' : String(gapBounds[i]), value, series: state.head.tiers[position] })),
    );
  },
  evictions: () =>
    overTime((now, then, add) => {
      const lasted = now.at - then.at || 1;
      const each = (field) => now.tiers.reduce((sum, tier, p) => sum + tier[field] - then.tiers[p][field], 0) / lasted;
      add('evicted', each('evicted'));
      add('dropped', each('dropped'));
      add('came back', each('returned'));
    }),
  queue: () =>
    overTime((now, _, add) => {
      add('run', now.running);
      add('wait', now.waiting);
    }),
};
function seriesOf(name) {
  const { tiers } = state.head;
  if (name === 'hits' || name === 'gaps') return { names: tiers, colours: tiers.map((_, i) => tierColour(i)) };
  if (name === 'evictions') return { names: ['evicted', 'dropped', 'came back'], colours: [okabeIto[5], okabeIto[1], okabeIto[4]] };
  if (name === 'queue') return { names: ['run', 'wait'], colours: [okabeIto[0], okabeIto[1]] };
  const links = state.frames[state.frames.length - 1].links;
  return { names: links.map(({ from, to }) => `${tiers[from]} \u2192 ${tiers[to]}`), colours: links.map((_, i) => okabeIto[i % 6]) };
}
function chartConfig() {
  const style = getComputedStyle(document.documentElement);
  const text = style.getPropertyValue('--muted').trim();
  const line = style.getPropertyValue('--line').trim();
  return {
    axis: { labelColor: text, titleColor: text, gridColor: line, domainColor: line, tickColor: line, titleFontWeight: 'normal' },
    legend: { labelColor: text, titleColor: text },
    style: { cell: { stroke: null } },
  };
}
/** How far up an axis goes: at least 1. Bars of one bucket stand on each other. */
function mostOf(rows) {
  const sums = new Map();
  for (const { bucket, value } of rows) {
    if (bucket !== undefined) sums.set(bucket, (sums.get(bucket) ?? 0) + value);
  }
  const values = sums.size > 0 ? [...sums.values()] : rows.map(({ value }) => value);
  return values.reduce((most, value) => Math.max(most, value), 1);
}
function drawCharts() {
  for (const name of Object.keys(chartRows)) {
    const place = $(name);
    const rows = chartRows[name]();
    const { names, colours } = seriesOf(name);
    const width = Math.max(200, place.clientWidth - 4);
    // the legend is made of the names: other names, another view
    const form = JSON.stringify([names, document.documentElement.dataset.theme, width]);
    let chart = state.charts[name];
    if (chart === undefined || chart.form !== form) {
      chart?.view.finalize();
      const view = new vega.View(vega.parse(state.specs[name], chartConfig()), { renderer: 'svg', container: place, hover: true });
      view.signal('names', names).signal('colours', colours).width(width);
      chart = { view, form };
      state.charts[name] = chart;
    }
    place.classList.toggle('nothing', rows.every(({ value }) => value === 0));
    chart.view.signal('most', mostOf(rows)).data('rows', rows).runAsync().catch((error) => console.error(error));
  }
}

// Tables.

function table(id, columns, rows) {
  fill($(id).tHead, make('tr', {}, ...columns.map(([title, kind]) => make('th', { class: kind }, title))));
  fill($(id).tBodies[0], ...rows);
}
/** What the frames up to the chosen one tell of, the newest first. */
function newest(field, most, newestFirst) {
  const found = [];
  for (let i = shown(); i >= 0 && found.length < most; i--) {
    const here = state.frames[i][field];
    found.push(...(newestFirst ? here : [...here].reverse()));
  }
  return found.slice(0, most);
}
const tierName = (position) => state.head.tiers[position] ?? '-';

function showBlocks(now) {
  const evicted = newest('evictions', 40, true).map(({ at, tier, key, tenant, seconds: idle, wentTo }) =>
    make('tr', {}, make('td', { class: 'number' }, seconds(now.at - at)), make('td', {}, tierName(tier)), make('td', {}, wentTo < 0 ? 'dropped' : `to ${tierName(wentTo)}`), make('td', { class: 'number' }, seconds(idle)), make('td', { class: 'clip', title: tenant }, tenant), make('td', {}, make('code', {}, key))),
  );
  table('evicted', [['ago', 'number'], ['from'], ['went'], ['unused for', 'number'], ['tenant'], ['block']], evicted);
  const returned = newest('returns', 40, true).map(({ at, tier, key, tenant, seconds: after }) =>
    make('tr', {}, make('td', { class: 'number' }, seconds(now.at - at)), make('td', {}, tierName(tier)), make('td', { class: 'number' }, seconds(after)), make('td', { class: 'clip', title: tenant }, tenant), make('td', {}, make('code', {}, key))),
  );
  table('returned', [['ago', 'number'], ['dropped by'], ['asked for after', 'number'], ['tenant'], ['block']], returned);
}

const partNames = ['lookup', 'wait for room', 'loads', 'prefill', 'decode'];
const partColours = ['#999999', '#D55E00', '#E69F00', '#0072B2', '#56B4E9'];

function showRequests(now) {
  const requests = newest('requests', 60, false);
  const live = state.head.mode === 'live';
  const rows = requests.map((request) => {
    const { id, tenant, at, promptTokens, blocks, foundByTier, parts, totalMs, how } = request;
    const found = foundByTier.reduce((sum, each) => sum + each, 0);
    const shares = foundByTier.map((each, tier) => [blocks === 0 ? 0 : each / blocks, tierColour(tier), `${each} from ${tierName(tier)}`]);
    const times = parts.map((ms, i) => [ms > 0 && totalMs > 0 ? ms / totalMs : 0, partColours[i], `${partNames[i]} ${seconds(ms / 1e3)}`]);
    const row = make(
      'tr',
      { tabindex: '0', class: state.chosen !== null && state.chosen.id === id && state.chosen.at === at ? 'chosen' : '' },
      make('td', { class: 'number' }, seconds(now.at - at)),
      make('td', { class: 'clip', title: id }, id),
      make('td', { class: 'clip', title: tenant }, tenant),
      ...(live ? [make('td', { class: 'number' }, count(promptTokens))] : []),
      make('td', { class: 'number' }, `${found} of ${blocks}`),
      make('td', {}, bar(shares)),
      make('td', { class: 'number' }, seconds(totalMs / 1e3)),
      ...(live ? [make('td', {}, bar(times))] : []),
      make('td', {}, how),
    );
    // not at the click's end: by then a newer frame may have put another row there
    row.addEventListener('mousedown', () => choose(request));
    row.addEventListener('keydown', (event) => event.key === 'Enter' && choose(request));
    return row;
  });
  const columns = [['came in', 'number'], ['request'], ['tenant'], ...(live ? [['prompt', 'number']] : []), ['blocks found', 'number'], ['from which tier'], ['took', 'number'], ...(live ? [['where the time went']] : []), ['end']];
  table('requests', columns, rows);
  $('requestHint').textContent = rows.length === 0 ? 'none has ended yet' : 'click one for its story';
}

function choose(request) {
  state.chosen = request;
  const { id, tenant, promptTokens, blocks, foundByTier, recomputed, returned, parts, totalMs, how } = request;
  const found = foundByTier.reduce((sum, each) => sum + each, 0);
  const lines = [];
  const tokens = promptTokens < 0 ? '' : ` for a prompt of ${count(promptTokens)} tokens`;
  lines.push(`It asked for ${blocks} full blocks${tokens}.`);
  foundByTier.forEach((each, tier) => each > 0 && lines.push(`${each} lay in ${tierName(tier)}${tier > 0 ? ' and came up' : ''}.`));
  if (recomputed > 0) lines.push(`${recomputed} were computed although a lower tier had them, because that was sooner.`);
  if (blocks > found) lines.push(`${blocks - found} were in no tier and were computed${returned > 0 ? `; ${returned} of them had been dropped shortly before` : ''}.`);
  parts.forEach((ms, i) => ms >= 0 && lines.push(`${partNames[i]}: ${seconds(ms / 1e3)}`));
  lines.push(`After ${seconds(totalMs / 1e3)} it ended: ${how}.`);
  fill($('story'), make('b', {}, `${id}${tenant === '' ? '' : ` of ${tenant}`}`), make('ol', {}, ...lines.map((line) => make('li', {}, line))));
  $('story').hidden = false;
  if (state.frames.length > 0) showRequests(state.frames[shown()]);
}

// What happens.

function show() {
  if (state.frames.length === 0 || state.head === null) return;
  const index = shown();
  const now = state.frames[index];
  const then = before(index, span());
  showFigures(now, then);
  showTiers(now, then);
  showBlocks(now);
  showRequests(now);
  if (state.specs !== undefined) drawCharts();
  if (state.head.mode === 'log') {
    $('slider').max = String(state.frames.length - 1);
    $('slider').value = String(index);
    $('moment').textContent = `${seconds(now.at - state.frames[0].at)} of ${seconds(state.frames[state.frames.length - 1].at - state.frames[0].at)}`;
  }
  document.body.dataset.frame = String(index);
}

function begin({ head, frames }) {
  state.head = head;
  state.frames = frames;
  showHead();
  findBest();
  show();
}

let isDue = false;

/** Draws what is newest then: a page that draws slower than frames come stays beside them, and answers its buttons. */
function showSoon() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    if (!state.paused) show();
  });
}

function listen() {
  const events = new EventSource('events');
  events.onmessage = ({ data }) => {
    const message = JSON.parse(data);
    if (message.head !== undefined) {
      begin(message);
      if (message.head.mode === 'log' && !message.head.isWritten) events.close();
      return;
    }
    state.frames.push(message.frame);
    if (state.frames.length > 600) state.frames.shift();
    noteBest();
    if (!state.paused) showSoon();
  };
  events.onerror = () => {
    $('mode').textContent = 'connection lost, trying again';
    $('mode').className = 'badge';
  };
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  $('theme').textContent = theme === 'dark' ? 'Light' : 'Dark';
}

$('theme').addEventListener('click', () => {
  setTheme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark');
  show();
});
$('pause').addEventListener('click', () => {
  state.paused = !state.paused;
  state.at = state.paused ? state.frames.length - 1 : -1;
  $('pause').textContent = state.paused ? 'Go on' : 'Pause';
  show();
});
$('slider').addEventListener('input', () => {
  state.at = Number($('slider').value);
  show();
});
$('play').addEventListener('click', () => {
  if (state.timer !== null) return stopPlaying();
  if (shown() === state.frames.length - 1) state.at = 0;
  $('play').textContent = 'Stop';
  state.timer = setInterval(() => {
    state.at = shown() + 1;
    if (state.at >= state.frames.length - 1) stopPlaying();
    show();
  }, 100);
});
function stopPlaying() {
  clearInterval(state.timer);
  state.timer = null;
  $('play').textContent = 'Play';
}
addEventListener('resize', () => show());

setTheme(matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
fetch('charts.json')
  .then((answer) => answer.json())
  .then((specs) => {
    state.specs = specs;
    show();
  });
listen();
