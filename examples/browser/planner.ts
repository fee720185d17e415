/**
 * The planner's page: controls make a deployment file, a worker simulates it, and charts show what came of it. Only the
 * latest plan is simulated: what a hand moves through on its way to it is left out. The plan is in the page's address.
 */

import { draw, tierLabels } from './plannerCharts.ts';
import type { FromWorker, PlanOutcome } from './plannerWorker.ts';

const at = <T extends HTMLElement>(id: string): T => document.getElementById(id) as T;

interface Control {
  readonly name: string;
  readonly label: string;
  readonly value: string;
  /** Names to choose from, or the list of the worker's that has them. */
  readonly options?:
    | readonly string[]
    | 'models'
    | 'hardware'
    | 'routing'
    | 'admission'
    | 'scheduler'
    | 'eviction';
  /** Values that a slider goes through. */
  readonly steps?: readonly number[];
  readonly unit?: string;
}

const gb = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];
const tokens = [0, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384];

const groups: Readonly<Record<string, readonly Control[]>> = {
  Deployment: [
    { name: 'model', label: 'Model', value: 'llama-3.1-8b-instruct', options: 'models' },
    { name: 'hardware', label: 'GPU', value: 'l40s', options: 'hardware' },
    { name: 'tp', label: 'GPUs of a replica', value: '1', steps: [1, 2, 4, 8] },
    { name: 'replicas', label: 'Replicas', value: '2', steps: [1, 2, 3, 4, 6, 8, 12, 16] },
  ],
  Tiers: [
    {
      name: 'gpuShare',
      label: 'GPU memory that may be used',
      value: '0.6',
      steps: [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95],
    },
    { name: 'host', label: 'Host memory of a replica', value: '16', steps: gb, unit: 'GB' },
    { name: 'disk', label: 'Disk of a replica', value: '256', steps: gb, unit: 'GB' },
    {
      name: 'device',
      label: 'Disk',
      value: 'nvme_gen4',
      options: ['nvme_gen4', 'nvme_gen3', 'sata_ssd', 's3'],
    },
  ],
  Workload: [
    { name: 'requests', label: 'Requests', value: '1000', steps: [100, 250, 500, 1000, 2000, 5000] },
    {
      name: 'rate',
      label: 'Conversations a second',
      value: '1.5',
      steps: [0.1, 0.25, 0.5, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32],
    },
    { name: 'rounds', label: 'Rounds of a conversation', value: '6', steps: [1, 2, 3, 4, 6, 8, 12, 16] },
    {
      name: 'think',
      label: 'Pause between rounds',
      value: '20',
      steps: [1, 2, 5, 10, 20, 30, 60, 120, 300, 600],
      unit: 's',
    },
    { name: 'system', label: 'Shared system prompt', value: '2048', steps: tokens, unit: 'tokens' },
    { name: 'prompt', label: 'A question, mean', value: '512', steps: tokens.slice(1), unit: 'tokens' },
    { name: 'output', label: 'An answer, mean', value: '128', steps: tokens.slice(1, 6), unit: 'tokens' },
  ],
  Policies: [
    { name: 'routing', label: 'Routing', value: 'session-affinity', options: 'routing' },
    { name: 'scheduler', label: 'Scheduler', value: 'fcfs', options: 'scheduler' },
    { name: 'eviction', label: 'Eviction', value: 'lru', options: 'eviction' },
    { name: 'load', label: 'Blocks below the GPU', value: 'when-faster', options: ['when-faster', 'always'] },
  ],
};
const all = Object.values(groups).flat();

/** The plan as its controls say, by their names. */
const plan = new Map(all.map(({ name, value }) => [name, value]));

/** The deployment file that `tierkv simulate --deployment` takes. */
function deploymentFile(): string {
  const value = (name: string): string => plan.get(name)!;
  const rounds = Number(value('rounds'));
  const prefix = Number(value('system'));
  const disk = Number(value('disk'));
  return `version: 1
seed: 7

models:
  - {name: ${value('model')}, hardware: ${value('hardware')}, tp: ${value('tp')}}

pools:
  - name: all
    replicas: ${value('replicas')}
    engine:
      gpu_memory_utilization: ${value('gpuShare')}
      scheduler: ${value('scheduler')}
      eviction: ${value('eviction')}
      kv_load: ${value('load')}
      preemption_mode: recompute
    tiers:
      cpu_bytes_to_use: ${Number(value('host')) * 1e9}${
        disk === 0
          ? ''
          : `
      secondary_tiers:
        - {type: fs, device_class: ${value('device')}, capacity_bytes: ${disk * 1e9}}`
      }

control:
  routing: {policy: ${value('routing')}}

workload:
  spec:
    version: "2"
    aggregate_rate: ${value('rate')}
    num_requests: ${value('requests')}
    clients:
      - id: talk
        rate_fraction: 1${
          prefix === 0
            ? ''
            : `
        prefix_group: system
        prefix_length: ${prefix}`
        }
        closed_loop: false
        arrival: {process: poisson}
        input_distribution: {type: exponential, params: {mean: ${value('prompt')}}}
        output_distribution: {type: exponential, params: {mean: ${value('output')}}}${
          rounds === 1
            ? ''
            : `
        reasoning:
          multi_turn: {max_rounds: ${rounds}, think_time_us: ${Number(value('think')) * 1e6}, context_growth: accumulate}`
        }
`;
}

//  The controls.

function shown({ unit }: Control, value: string): string {
  return `${Number(value).toLocaleString('en')}${unit === undefined ? '' : ` ${unit}`}`;
}

function makeControl(control: Control, choices: Readonly<Record<string, readonly string[]>>): HTMLElement {
  const { name, options, steps } = control;
  const label = document.createElement('label');
  label.append(control.label);
  if (steps === undefined) {
    const select = document.createElement('select');
    const names = typeof options === 'string' ? choices[options] : (options ?? []);
    for (const each of names) select.append(new Option(each, each));
    select.value = plan.get(name)!;
    select.name = name;
    select.addEventListener('change', () => change(name, select.value));
    label.append(select);
    return label;
  }
  const value = document.createElement('span');
  value.className = 'value';
  const slider = document.createElement('input');
  Object.assign(slider, { type: 'range', min: '0', max: String(steps.length - 1), step: '1', name });
  const nearest = steps.findIndex((each) => each >= Number(plan.get(name)));
  slider.value = String(nearest < 0 ? steps.length - 1 : nearest);
  const tell = (): void => {
    const chosen = String(steps[Number(slider.value)]);
    value.textContent = shown(control, chosen);
    slider.setAttribute('aria-valuetext', value.textContent);
    plan.set(name, chosen);
  };
  tell();
  slider.addEventListener('input', () => {
    tell();
    change(name, plan.get(name)!);
  });
  label.append(value, slider);
  return label;
}

function makeControls(choices: Readonly<Record<string, readonly string[]>>): void {
  for (const [name, given] of new URLSearchParams(location.hash.slice(1))) {
    const control = all.find((each) => each.name === name);
    const known = typeof control?.options === 'string' ? choices[control.options] : control?.options;
    const fits = known === undefined ? Number.isFinite(Number(given)) : known.includes(given);
    if (control !== undefined && fits) plan.set(name, given);
  }
  for (const [title, controls] of Object.entries(groups)) {
    const group = document.createElement('fieldset');
    const legend = document.createElement('legend');
    legend.textContent = title;
    group.append(legend, ...controls.map((control) => makeControl(control, choices)));
    at('controls').append(group);
  }
}

//  Runs: one at a time, and behind it the latest plan only.

const worker = new Worker('plannerWorker.js', { type: 'module' });
let asked = 0;
let isRunning = false;
let isWaiting = false;
let outcome: PlanOutcome | undefined;
let kept: PlanOutcome | undefined;

function change(name: string, value: string): void {
  plan.set(name, value);
  const changed = all.filter((each) => plan.get(each.name) !== each.value);
  history.replaceState(
    null,
    '',
    `#${new URLSearchParams(changed.map((each) => [each.name, plan.get(each.name)!]))}`,
  );
  run();
}

function run(): void {
  isWaiting = isRunning;
  if (isRunning) return;
  isRunning = true;
  const file = deploymentFile();
  at('file').textContent = file;
  const state = at('state');
  state.textContent = 'simulating';
  state.classList.add('busy');
  worker.postMessage({ id: ++asked, file });
}

worker.addEventListener('message', async ({ data }: MessageEvent<FromWorker>) => {
  if ('choices' in data) {
    makeControls(data.choices);
    run();
    return;
  }
  isRunning = false;
  if (isWaiting) run();
  const problem = at('problem');
  problem.hidden = 'outcome' in data;
  at('charts').style.opacity = 'problem' in data ? '0.35' : '';
  if ('problem' in data) problem.textContent = data.problem;
  else {
    outcome = data.outcome;
    await show();
  }
  if (data.id !== asked) return; // a newer run began before the charts were drawn, and has the state
  const state = at('state');
  state.classList.remove('busy');
  state.textContent = 'problem' in data ? 'stopped' : `simulated in ${Math.round(data.outcome.tookMs)} ms`;
  document.body.dataset.run = String(data.id);
});
worker.addEventListener('error', ({ message }) => {
  at('problem').hidden = false;
  at('problem').textContent = `The simulator cannot start: ${message}`;
});

interface Figure {
  readonly label: string;
  readonly of: (outcome: PlanOutcome) => number;
  readonly text: (value: number) => string;
  /** Whether more is better, less is, or neither. */
  readonly better: 1 | -1 | 0;
}

const ms = (value: number): string =>
  value >= 10_000 ? `${(value / 1000).toFixed(1)} s` : `${value.toFixed(value < 100 ? 1 : 0)} ms`;
const percent = (value: number): string => `${(100 * value).toFixed(1)}%`;

const figures: readonly Figure[] = [
  { label: 'first token, mean', of: ({ metrics }) => metrics.ttft_mean_ms, text: ms, better: -1 },
  { label: 'first token, p99', of: ({ metrics }) => metrics.ttft_p99_ms, text: ms, better: -1 },
  { label: 'between tokens, mean', of: ({ metrics }) => metrics.itl_mean_ms, text: ms, better: -1 },
  { label: 'whole request, p99', of: ({ metrics }) => metrics.e2e_p99_ms, text: ms, better: -1 },
  {
    label: 'tokens a second',
    of: ({ metrics }) => metrics.tokens_per_sec,
    text: (value) => Math.round(value).toLocaleString('en'),
    better: 1,
  },
  { label: 'found in the cache', of: ({ hitRate }) => hitRate, text: percent, better: 1 },
  {
    label: 'requests served',
    of: ({ metrics }) => metrics.completed_requests,
    text: (value) => value.toLocaleString('en'),
    better: 0,
  },
  { label: 'GPUs', of: ({ gpus }) => gpus, text: String, better: 0 },
];

function figureOf({ label, of, text, better }: Figure, now: PlanOutcome): HTMLElement {
  const place = document.createElement('div');
  place.className = 'figure';
  const value = document.createElement('b');
  value.textContent = text(of(now));
  const name = document.createElement('span');
  name.textContent = label;
  place.append(value, name);
  if (kept !== undefined && better !== 0 && of(kept) !== 0) {
    const change = of(now) / of(kept) - 1;
    const line = document.createElement('span');
    const sign = change > 0 ? '+' : '';
    line.textContent = `${sign}${(100 * change).toFixed(1)}% to the kept run`;
    if (Math.abs(change) >= 0.005) line.className = change * better > 0 ? 'better' : 'worse';
    place.append(line);
  }
  return place;
}

async function show(): Promise<void> {
  if (outcome === undefined) return;
  const now = outcome;
  const cards = figures.map((figure) => figureOf(figure, now));
  const byTier = now.tiers.map((tier, i) => `${tierLabels[tier]} ${percent(now.hitRates[i])}`).join(', ');
  cards[5].title = byTier;
  at('figures').replaceChildren(...cards);
  at<HTMLButtonElement>('pin').disabled = false;
  await draw(now, kept, document.documentElement.dataset.theme === 'dark');
}

at('pin').addEventListener('click', () => {
  kept = kept === undefined ? outcome : undefined;
  at('pin').textContent = kept === undefined ? 'Keep to compare' : 'Compare no more';
  void show();
});

function setTheme(dark: boolean): void {
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
  at('theme').textContent = dark ? 'Light' : 'Dark';
  void show();
}
at('theme').addEventListener('click', () => setTheme(document.documentElement.dataset.theme !== 'dark'));
setTheme(matchMedia('(prefers-color-scheme: dark)').matches);
let resized: ReturnType<typeof setTimeout> | undefined;
addEventListener('resize', () => {
  clearTimeout(resized);
  resized = setTimeout(() => void show(), 150);
});
