/** A report as HTML: everything that is text is in the page itself, so that it can be read, printed and searched without scripts. */

import { readFileSync } from 'node:fs';
import { dataFolder } from '../../packageFiles.ts';
import { vegaForBrowsers } from '../dashboard/pageServer.ts';
import { importPeer } from '../metrics/peer.ts';
import { chartsOf, type ReportChart } from './charts.ts';
import { requireReport } from './checkReport.ts';
import {
  type Figure,
  meetsTarget,
  type Report,
  type ReportSection,
  type TableSection,
  type TimelineRequest,
  type TimelineSection,
  written,
} from './model.ts';

/** Most requests of a timeline, at 100 bytes each; of more, the page shows a sample and says so. */
const REQUESTS_MOST = 20_000;
/** Most rows of a table. */
const ROWS_MOST = 2000;

/** @throws TKV_CONFIG where vega or vega-lite is not installed */
export async function requireDrawing(): Promise<void> {
  vegaForBrowsers('a report');
  await importPeer('vega-lite', 'the charts of a report');
}

/**
 * Writes a report as the text of one HTML page, of at most some 5 MB.
 * @throws TKV_INPUT with the place of what is missing or of another kind in the report; TKV_CONFIG where vega or vega-lite is not
 * installed
 */
export async function reportPage(report: Report): Promise<string> {
  requireReport(report);
  const own = (name: string): string => readFileSync(new URL(`report/${name}`, dataFolder()), 'utf8');
  const charts = await chartsOf(report.sections);
  const sections = report.sections.map((section, i) => sectionHtml(section, charts[i], `section-${i}`));
  const timeline = report.sections.find(({ kind }) => kind === 'timeline') as TimelineSection | undefined;
  const data = {
    charts: charts.flat().map(({ id, spec, rows, isOfTimeline }) => ({ id, spec, rows, isOfTimeline })),
    timeline: timeline === undefined ? null : timelineData(timeline),
  };
  const { title, question, answer, verdict, figures, next, limits, origin } = report;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'">
<title>${escaped(title)}</title>
<link rel="icon" href="data:,">
<style>
${own('report.css')}
</style>
</head>
<body>
<header>
  <p class="brand">tierkv report</p>
  <span class="grow"></span>
  <button id="theme" type="button">Dark</button>
  <button id="print" type="button">Print</button>
</header>
<main>
<section class="lead">
  <h1>${escaped(title)}</h1>
  <p class="question">${escaped(question)}</p>
  <p class="answer ${verdict}">${escaped(answer)}</p>
</section>
<section class="figures" aria-label="figures">
${figures.map(figureHtml).join('\n')}
</section>
${sections.join('\n')}
${listHtml('What to change next', next, 'next')}
${listHtml('What this leaves out', limits, 'limits')}
<section id="origin">
  <h2>Where this comes from</h2>
  <pre><code>${escaped(origin.command)}</code></pre>
  <button id="copy" type="button">Copy the command</button>
  <dl>
${[...Object.entries(origin.versions), ...Object.entries(origin.facts)]
  .map(([name, value]) => `    <dt>${escaped(name)}</dt><dd>${escaped(value)}</dd>`)
  .join('\n')}
  </dl>
</section>
</main>
<noscript><p class="note">Charts are drawn by scripts; all figures and tables are in the page.</p></noscript>
<script id="data" type="application/json">${json(data)}</script>
<script>${scriptText(vegaForBrowsers('a report').toString('utf8'))}</script>
<script>
${scriptText(own('report.js'))}
</script>
</body>
</html>
`;
}

const letters: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (letter) => letters[letter]);
}

/** JSON within a script: no letter of it ends the script. */
function json(value: unknown): string {
  return JSON.stringify(value, (_name, each: unknown) =>
    typeof each === 'number' ? rounded(each) : each,
  ).replace(/[<>&\u2028\u2029]/g, (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** Six digits: what a chart shows. */
function rounded(value: number): number {
  return Number.isInteger(value) ? value : Number(value.toPrecision(6));
}

function scriptText(text: string): string {
  return text.replaceAll('</script', '<\\/script').replaceAll('<!--', '<\\!--');
}

function figureHtml(figure: Figure): string {
  const { name, value, unit, spread, target, note } = figure;
  const met = meetsTarget(figure);
  const lines = [
    ...(spread === undefined
      ? []
      : [`${written(spread.low, unit)} to ${written(spread.high, unit)} over ${spread.over}`]),
    ...(target?.most === undefined ? [] : [`target: at most ${written(target.most, unit)}`]),
    ...(target?.least === undefined ? [] : [`target: at least ${written(target.least, unit)}`]),
    ...(note === undefined ? [] : [note]),
  ];
  const state = met === null ? '' : met ? ' met' : ' missed';
  const mark = met === null ? '' : `<i class="mark">${met ? 'met' : 'missed'}</i>`;
  return `<div class="figure${state}"><span>${escaped(name)}</span><b>${escaped(written(value, unit))}</b>${mark}${lines
    .map((line) => `<small>${escaped(line)}</small>`)
    .join('')}</div>`;
}

function listHtml(title: string, items: readonly string[], id: string): string {
  if (items.length === 0) return '';
  return `<section id="${id}"><h2>${escaped(title)}</h2><ul>${items.map((item) => `<li>${escaped(item)}</li>`).join('')}</ul></section>`;
}

function chartHtml({ id, title, note, description }: ReportChart, level: 'h2' | 'h3'): string {
  return `<figure><${level}>${escaped(title)}</${level}><div class="chart" id="${id}" role="img" aria-label="${escaped(description)}"></div>${noteHtml(note)}</figure>`;
}

function noteHtml(note: string | undefined): string {
  return note === undefined || note === '' ? '' : `<p class="note">${escaped(note)}</p>`;
}

function sectionHtml(section: ReportSection, charts: readonly ReportChart[], id: string): string {
  if (section.kind === 'text') {
    const { title, paragraphs } = section;
    return `<section id="${id}"><h2>${escaped(title)}</h2>${paragraphs.map((each) => `<p>${escaped(each)}</p>`).join('')}</section>`;
  }
  if (section.kind === 'table') return tableHtml(section, id);
  if (section.kind === 'timeline') return timelineHtml(section, charts, id);
  return `<section id="${id}">${charts.map((chart) => chartHtml(chart, 'h2')).join('')}</section>`;
}

function tableHtml({ title, note, columns, rows, chosen }: TableSection, id: string): string {
  const shown = rows.slice(0, ROWS_MOST);
  const cell = (value: string | number | null, i: number): string => {
    const { unit } = columns[i];
    if (unit === undefined && typeof value !== 'number') return `<td>${escaped(value ?? '-')}</td>`;
    const text = typeof value === 'string' ? value : written(value, unit ?? 'plain');
    return `<td class="number"${typeof value === 'number' ? ` data-value="${value}"` : ''}>${escaped(text)}</td>`;
  };
  const left = rows.length - shown.length;
  return `<section id="${id}"><h2>${escaped(title)}</h2>${noteHtml(note)}<div class="scroll"><table class="sortable">
<thead><tr>${columns.map(({ title: name, unit }) => `<th scope="col"${unit === undefined ? '' : ' class="number"'}>${escaped(name)}</th>`).join('')}</tr></thead>
<tbody>
${shown.map((row, i) => `<tr${i === chosen ? ' class="chosen"' : ''}>${row.map(cell).join('')}</tr>`).join('\n')}
</tbody></table></div>${left === 0 ? '' : noteHtml(`${left} more rows are left out.`)}</section>`;
}

/** The columns of the table of requests that have something in them. */
function timelineColumns({
  requests,
  place = 'instance',
  of = 'request',
}: TimelineSection): readonly TimelineColumn[] {
  const has = (test: (request: TimelineRequest) => boolean): boolean => requests.some(test);
  const all: readonly (readonly [key: string, title: string, isThere: boolean, isText?: boolean])[] = [
    ['id', of, true, true],
    ['arrival', of === 'request' ? 'arrival' : 'began', true],
    ['joined', 'waited', has(({ joinedS }) => joinedS !== null)],
    ['first', 'first token', has(({ firstTokenS }) => firstTokenS !== null)],
    ['end', 'whole', true],
    ['prompt', 'prompt tokens', has(({ promptTokens }) => promptTokens > 0)],
    ['output', 'output tokens', has(({ outputTokens }) => outputTokens > 0)],
    ['place', place, has(({ where }) => where !== ''), true],
    ['status', 'end', true, true],
  ];
  return all.flatMap(([key, title, isThere, isText = false]) => (isThere ? [{ key, title, isText }] : []));
}

interface TimelineColumn {
  readonly key: string;
  readonly title: string;
  readonly isText: boolean;
}

function timelineHtml(section: TimelineSection, charts: readonly ReportChart[], id: string): string {
  const { title, note, requests, requestsInAll, of = 'request' } = section;
  const hasFirst = requests.some(({ firstTokenS }) => firstTokenS !== null);
  const shown = Math.min(requests.length, REQUESTS_MOST);
  const sampled =
    shown < requestsInAll
      ? `Of ${written(requestsInAll, 'count')} ${of}s, ${written(shown, 'count')} are in this page: the slowest, and every n-th of the rest.`
      : '';
  return `<section id="${id}" class="timeline"><h2>${escaped(title)}</h2>${noteHtml(note)}
<p class="controls"><button id="whole" type="button">Whole run</button> <button id="closer" type="button">Zoom in</button> <button id="wider" type="button">Zoom out</button> <button id="earlier" type="button">Earlier</button> <button id="later" type="button">Later</button> <output id="range"></output></p>
${charts.map((chart) => chartHtml(chart, 'h3')).join('\n')}
${
  requests.length === 0
    ? ''
    : `<figure><h3>${of}s</h3><div class="chart" id="gantt" role="img" aria-label="${of}s over time"></div></figure>
<p class="controls"><label>Find a ${of} <input id="find" type="search" placeholder="id" autocomplete="off"></label> <label>Sort by <select id="order"><option value="slow">slowest first</option>${hasFirst ? '<option value="wait">longest first token</option>' : ''}<option value="time">in order</option></select></label></p>
${noteHtml(sampled)}
<div class="scroll"><table id="requests"><thead><tr>${timelineColumns(section)
        .map(
          ({ title: head, isText }) =>
            `<th scope="col"${isText ? '' : ' class="number"'}>${escaped(head)}</th>`,
        )
        .join('')}</tr></thead><tbody></tbody></table></div>
<div id="story" hidden></div>`
}
</section>`;
}

const USUAL_PARTS: readonly string[] = ['waits', 'computes its prompt', 'computes its output'];

/** Requests in columns: numbers relative to the arrival, in milliseconds. */
function timelineData(section: TimelineSection): object {
  const { requests, lanes, events, parts = USUAL_PARTS } = section;
  const kept = sample(requests);
  const ms = (from: number, to: number | null): number => {
    if (to === null) return -1;
    const all = (to - from) * 1000;
    return all < 10 ? Math.round(all * 100) / 100 : Math.round(all);
  };
  const places = [...new Set(kept.map(({ where }) => where))];
  const statuses = [...new Set(kept.map(({ status }) => status))];
  const ends = [
    ...kept.map(({ endS, firstTokenS, arrivalS }) => endS ?? firstTokenS ?? arrivalS),
    ...lanes.flatMap(({ series }) => series.map(({ points }) => points.at(-1)?.[0] ?? 0)),
    ...events.map(({ s }) => s),
  ];
  return {
    endS: ends.reduce((most, each) => Math.max(most, each), 1e-3),
    parts,
    of: section.of ?? 'request',
    columns: timelineColumns(section).map(({ key }) => key),
    places,
    statuses,
    ids: kept.map(({ id }) => id),
    arrivalS: kept.map(({ arrivalS }) => arrivalS),
    joinedMs: kept.map(({ arrivalS, joinedS }) => ms(arrivalS, joinedS)),
    firstMs: kept.map(({ arrivalS, firstTokenS }) => ms(arrivalS, firstTokenS)),
    endMs: kept.map(({ arrivalS, endS }) => ms(arrivalS, endS)),
    prompt: kept.map(({ promptTokens }) => promptTokens),
    output: kept.map(({ outputTokens }) => outputTokens),
    place: kept.map(({ where }) => places.indexOf(where)),
    status: kept.map(({ status }) => statuses.indexOf(status)),
    notes: Object.fromEntries(kept.flatMap(({ note }, i) => (note === undefined ? [] : [[i, note]]))),
  };
}

/** A tenth of them are the slowest; the rest lie equally far apart. */
function sample(requests: readonly TimelineRequest[]): TimelineRequest[] {
  if (requests.length <= REQUESTS_MOST) return [...requests];
  const lasted = ({ arrivalS, endS }: TimelineRequest): number =>
    endS === null ? Number.MAX_VALUE : endS - arrivalS;
  const order = requests.map((_, i) => i).sort((a, b) => lasted(requests[b]) - lasted(requests[a]));
  const slow = REQUESTS_MOST / 10;
  const chosen = new Set(order.slice(0, slow));
  const rest = requests.length / (REQUESTS_MOST - slow);
  for (let i = 0; i < requests.length && chosen.size < REQUESTS_MOST; i += rest) chosen.add(Math.floor(i));
  for (let i = rest / 2; i < requests.length && chosen.size < REQUESTS_MOST; i += rest)
    chosen.add(Math.floor(i));
  return requests.filter((_, i) => chosen.has(i));
}
