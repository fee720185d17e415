/**
 * The evaluator as a service for search frameworks. It checks candidates and requests field by field, answers each
 * request once, in any order, and gives SkyDiscover, OpenEvolve and GEPA one flat object of metrics. Transports lie
 * outside.
 */

import { parseJson, withoutMark } from '../../runtime/boundedJson.ts';
import { configError, described, TierKVError, unknownName } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs, type Kinds, optionTable } from '../../runtime/options.ts';
import { PolicyError } from '../sandbox/program.ts';
import { bindBundle } from './binding/bind.ts';
import { type PolicyBundle, type PolicySlot, policySlots } from './bundle/policyBundle.ts';
import { baseline } from './bundle/presets.ts';
import { readBundle } from './bundle/readBundle.ts';
import { describePolicies, descriptionText } from './bundle/schema.ts';
import type { Evaluation, EvaluationError, Evaluator, SuiteName } from './fitness/evaluation.ts';
import { metricDescriptions, metricsText, policyNodes } from './fitness/objectives.ts';

// The answer. It has every metric, with zeros where a candidate failed, since a framework drops a candidate that lacks
// one.

interface ScenarioAnswer {
  /** Workload, model of time, seed. */
  readonly id: string;
  /** `combined_score` of this case alone. */
  readonly score: number;
  /** Gains over the baseline by objective. */
  readonly objectives: Readonly<Record<string, number>>;
}

export interface ServiceAnswer {
  readonly status: 'success' | 'error' | 'timeout';
  /** Above 0 for a candidate that ran, 1 for the baseline, more is better; 0 for a candidate that failed. */
  readonly combined_score: number;
  readonly metrics: Readonly<Record<string, number>>;
  readonly per_scenario: readonly ScenarioAnswer[];
  /** Texts for the next prompt. */
  readonly artifacts: Readonly<Record<string, string>>;
  /** 16 hexadecimal digits; '' where the candidate could not be read. */
  readonly policy_hash: string;
  readonly error?: EvaluationError;
}

/** A score as a positive number that rises with it; the baseline's score of 0 becomes 1. */
export function combinedScore(score: number): number {
  return score >= 0 ? 1 + score : 1 / (1 - score);
}

function named(names: readonly string[], values: readonly number[]): Record<string, number> {
  return Object.fromEntries(names.map((name, i) => [name, values[i] ?? 0]));
}

/** Finite numbers only: frameworks bin and average them. */
function finite(metrics: Readonly<Record<string, number>>): Record<string, number> {
  return Object.fromEntries(
    Object.entries(metrics).map(([name, value]) => [name, Number.isFinite(value) ? value : 0]),
  );
}

function answerOf(
  evaluation: Evaluation,
  bundle: PolicyBundle,
  objectives: readonly string[],
  artifacts: Readonly<Record<string, string>>,
): ServiceAnswer {
  const { error, score, metrics, cases = [], policyId } = evaluation;
  if (error !== undefined)
    return { ...failure(error, Object.keys(metrics), objectives), policy_hash: policyId };
  const gains = named(
    objectives.map((name) => `gain_${name}`),
    evaluation.objectives,
  );
  return {
    status: 'success',
    combined_score: combinedScore(score),
    metrics: finite({ ...metrics, ...gains, score, policy_nodes: policyNodes(bundle) }),
    per_scenario: cases.map((each) => ({
      id: each.id,
      score: combinedScore(each.score),
      objectives: named(objectives, each.objectives),
    })),
    artifacts,
    policy_hash: policyId,
  };
}

/** @param metrics names of all metrics */
function failure(
  error: EvaluationError,
  metrics: readonly string[],
  objectives: readonly string[],
): ServiceAnswer {
  const names = [...metrics, ...objectives.map((name) => `gain_${name}`), 'score', 'policy_nodes'];
  return {
    status: error.kind === 'infrastructure_timeout' ? 'timeout' : 'error',
    combined_score: 0,
    metrics: Object.fromEntries(names.map((name) => [name, 0])),
    per_scenario: [],
    artifacts: { failure: failureText(error) },
    policy_hash: '',
    error,
  };
}

function failureText({ kind, message, line }: EvaluationError): string {
  const place = line === undefined ? '' : ` at line ${line}`;
  const head = message.startsWith(kind) ? message : `${kind}${place}: ${message}`;
  return `The policy did not run. ${head}`;
}

// Candidates as frameworks send them: a whole bundle, or a text for each slot on top of a base bundle. A text
// that begins with a brace is the JSON of a policy, any other one a Starlark program.

type Texts = Readonly<Record<string, string>>;

/** @throws TKV_CONFIG with the field at fault */
function bundleOfTexts(texts: Texts, base: PolicyBundle): PolicyBundle {
  const slots: Record<string, unknown> = {};
  for (const [slot, text] of Object.entries(texts)) {
    if (!policySlots.some((name) => name === slot)) throw unknownName('candidate', slot, policySlots);
    if (typeof text !== 'string')
      throw configError(`candidate.${slot}`, 'must be a string', 'Give its program or JSON.');
    const plain = withoutMark(text);
    slots[slot] = plain.trimStart().startsWith('{') ? jsonOf(slot, plain) : programOf(plain);
  }
  const { name: _, ...unnamed } = base;
  return readBundle({ ...unnamed, ...slots });
}

function programOf(source: string): unknown {
  return { type: 'code', language: 'starlark', source };
}

function jsonOf(slot: string, text: string): unknown {
  return parseJson(text, (problem) => {
    return new PolicyError('compile', `the text begins as JSON and ${problem}. Correct it`, { path: slot });
  });
}

const START = /^\s*(#|\/\/)\s*EVOLVE-BLOCK-START/;
const END = /^\s*(#|\/\/)\s*EVOLVE-BLOCK-END/;

interface FrozenLine {
  readonly text: string;
  /** Number of the line in the whole text, from 1 on. */
  readonly line: number;
}

/** Lines that a search must not edit, with a mark in place of each block. Without blocks: all lines. */
function frozenLines(text: string): FrozenLine[] {
  const frozen: FrozenLine[] = [];
  let isOpen = false;
  for (const [i, line] of text.split('\n').entries()) {
    if (START.test(line)) isOpen = true;
    if (!isOpen) frozen.push({ text: line.trimEnd(), line: i + 1 });
    if (isOpen && END.test(line)) {
      isOpen = false;
      frozen.push({ text: '# EVOLVE-BLOCK', line: i + 1 });
    }
  }
  while (frozen.at(-1)?.text === '') frozen.pop();
  return frozen;
}

/**
 * Compares the text outside the marked blocks. An original without blocks may be edited everywhere.
 * @throws PolicyError frozen_region_edited with the line
 */
function checkFrozen(slot: string, text: string, original: string): void {
  if (!original.split('\n').some((line) => START.test(line))) return;
  const before = frozenLines(original);
  const after = frozenLines(text);
  const differs = before.findIndex(({ text: wanted }, i) => wanted !== after[i]?.text);
  if (differs < 0 && after.length === before.length) return;
  const at = differs < 0 ? before.length : differs;
  const wanted = at < before.length ? JSON.stringify(before[at].text) : 'nothing more';
  // where lines are lacking at the end, behind the last one
  const line = after[at]?.line ?? text.trimEnd().split('\n').length;
  throw new PolicyError(
    'frozen_region_edited',
    `text outside the lines EVOLVE-BLOCK-START and EVOLVE-BLOCK-END has changed: ${wanted} is expected. ` +
      'Edit only what stands between them',
    { path: slot, line },
  );
}

/** Reads a bundle whose programs may differ from their originals inside the marked blocks only. */
function bundleOf(json: unknown, originals: Texts): PolicyBundle {
  const bundle = readBundle(json);
  for (const slot of policySlots) {
    const spec = bundle[slot];
    if (originals[slot] === undefined || spec === undefined) continue;
    checkFrozen(slot, spec.type === 'code' ? spec.source : JSON.stringify(spec), originals[slot]);
  }
  return bundle;
}

// Requests of the wire, checked field by field.

/** A number, a text, or null, by which a client finds the request of an answer. */
type RequestId = number | string | null;

/** Methods, each with the names of its parameters. */
const methods = {
  evaluate: ['candidate', 'bundle', 'suite', 'cases', 'frozen', 'limits'],
  validate: ['candidate', 'bundle', 'frozen'],
  describe: ['slots'],
  baseline: ['suite', 'cases', 'limits'],
  cancel: ['id'],
  status: [],
  shutdown: [],
} as const;
/** Suites that frameworks may ask for. The hidden suite is for the final judgement. */
const suites: readonly SuiteName[] = ['train', 'validation'];

type ServiceMethod = keyof typeof methods;
type Params = Readonly<Record<string, unknown>>;

function idOf(request: unknown): RequestId {
  if (typeof request !== 'object' || request === null || !('id' in request)) return null;
  const { id } = request;
  return typeof id === 'number' || typeof id === 'string' ? id : null;
}

function checked(request: unknown): { method: ServiceMethod; params: Params } {
  if (typeof request !== 'object' || request === null || Array.isArray(request)) {
    throw configError('request', 'must be an object', 'Send {"id", "method", "params"}.');
  }
  const { method, params = {} } = request as { method?: unknown; params?: unknown };
  const names = Object.keys(methods) as ServiceMethod[];
  const known = names.find((name) => name === method);
  if (known === undefined) throw unknownName('method', String(method), names);
  if (typeof params !== 'object' || params === null || Array.isArray(params)) {
    throw configError('params', 'must be an object', 'Send one, or leave it out.');
  }
  for (const name of Object.keys(params)) {
    if (!methods[known].some((each) => each === name)) throw unknownName('params', name, methods[known]);
  }
  return { method: known, params: params as Params };
}

function suiteOf(value: unknown): SuiteName {
  if (value === undefined) return 'train';
  const suite = suites.find((name) => name === value);
  if (suite === undefined) throw unknownName('params.suite', String(value), suites);
  return suite;
}

/** @param known ids of the suite's cases */
function casesOf(value: unknown, known: readonly string[]): readonly unknown[] | undefined {
  if (value === undefined) return value;
  if (!Array.isArray(value) || value.length === 0) {
    throw configError('params.cases', 'must be a list of ids', 'Give it ids of cases, or leave it out.');
  }
  for (const id of value) {
    if (!known.includes(id)) throw unknownName('params.cases', String(id), known);
  }
  return value;
}

const taskLimits = optionTable({ wallMs: is.optional(is.by(requireWall)) }, 'TKV_CONFIG');
const frozenTable = optionTable(
  Object.fromEntries(policySlots.map((slot) => [slot, is.optional(is.text())])),
  'TKV_CONFIG',
);

function requireWall(wallMs: number, field: string): number {
  if (typeof wallMs === 'number' && wallMs >= 1 && wallMs <= 86_400_000) return wallMs;
  throw configError(field, `is ${described(wallMs)}`, 'Give it from 1 to 86400000 ms.');
}

function wallMsOf(limits: unknown): number | undefined {
  if (limits === undefined) return undefined;
  return taskLimits.read(limits, 'params.limits').wallMs;
}

/** The original texts that candidates are compared with. */
function originalsOf(frozen: unknown): Texts {
  if (frozen === undefined) return {};
  frozenTable.read(frozen, 'params.frozen');
  return frozen as Texts;
}

function slotsOf(value: unknown): readonly PolicySlot[] {
  if (value === undefined) return policySlots;
  if (!Array.isArray(value)) throw configError('params.slots', 'must be a list', 'Give it names of slots.');
  return value.map((each) => {
    const slot = policySlots.find((name) => name === each);
    if (slot === undefined) throw unknownName('params.slots', String(each), policySlots);
    return slot;
  });
}

// The evaluator behind a wire. Requests have a method and parameters; each is answered once, in any order, many at a
// time. A candidate at fault gets an answer like all others; a request at fault gets an error.
//
// Methods: `evaluate`, `validate`, `describe`, `baseline`, `cancel`, `status`. `shutdown` is the transport's.

type Response =
  | { readonly id: RequestId; readonly result: unknown }
  | { readonly id: RequestId; readonly error: { readonly code: string; readonly message: string } };

export interface ServiceOptions {
  readonly evaluator: Evaluator;
  /** Bundle whose slots the texts replace. Default: the baseline. */
  readonly base?: PolicyBundle;
  /** Wall-clock limit of a candidate in ms, where a request gives none. A candidate over it has failed. */
  readonly wallMs?: number;
  /** Texts about a candidate that ran, for the next prompt. */
  readonly artifactsOf?: (bundle: PolicyBundle, evaluation: Evaluation, suite: SuiteName) => Promise<Texts>;
}

const serviceOptionTable = optionTable({
  evaluator: is.passed(),
  base: is.optional(is.passed()),
  wallMs: is.optional(is.passed()),
  artifactsOf: is.optional(is.func()),
} satisfies Kinds<ServiceOptions>);

const WALL_MS = 120_000;
/** Answers search frameworks that ask for evaluations: what `tierkv evaluate` runs for frameworks. */
export class EvaluationService {
  readonly #options: ServiceOptions;
  /** Clients number their requests on their own, so several may have the same id. */
  readonly #running: Map<RequestId, Set<AbortController>> = new Map();
  #metricNames: Promise<readonly string[]> | null = null;
  #answered = 0;

  constructor(options: ServiceOptions) {
    serviceOptionTable.read(options);
    checkInputs({ options }, { options: is.fields({ evaluator: is.fields({ evaluate: is.func() }) }) });
    this.#options = options;
  }

  get base(): PolicyBundle {
    return this.#options.base ?? baseline;
  }

  /** Answers a request, given as parsed JSON. Never rejects. */
  async handle(request: unknown): Promise<Response> {
    const id = idOf(request);
    try {
      const { method, params } = checked(request);
      const result = await this.#run(id, method, params);
      this.#answered++;
      return { id, result };
    } catch (error) {
      return { id, error: { code: codeOf(error), message: messageOf(error) } };
    }
  }

  /** Cancels all running requests; each gets its answer. */
  close(): void {
    for (const id of this.#running.keys()) this.#abort(id, 'the evaluator shuts down');
  }

  async #run(id: RequestId, method: ServiceMethod, params: Params): Promise<unknown> {
    switch (method) {
      case 'evaluate':
        return this.#evaluate(id, params, this.#reader(params));
      case 'baseline':
        return this.#evaluate(id, params, () => baseline);
      case 'validate':
        return this.#validate(params);
      case 'describe': {
        const slots = slotsOf(params.slots);
        const { objectiveNames } = this.#options.evaluator;
        return {
          text: `${descriptionText(slots)}\n${metricsText()}`,
          policies: describePolicies(),
          metrics: metricDescriptions,
          objectives: objectiveNames,
        };
      }
      case 'cancel':
        return { cancelled: this.#abort(params.id as RequestId, 'it was cancelled') };
      case 'status':
        return {
          running: [...this.#running.values()].reduce((sum, { size }) => sum + size, 0),
          answered: this.#answered,
        };
      case 'shutdown':
        return {};
    }
  }

  /** Cancels requests of that id. Returns whether one ran. */
  #abort(id: RequestId, why: string): boolean {
    const controllers = [...(this.#running.get(id) ?? [])];
    for (const controller of controllers) controller.abort(timeout(why));
    return controllers.length > 0;
  }

  #began(id: RequestId, controller: AbortController): void {
    this.#running.set(id, (this.#running.get(id) ?? new Set()).add(controller));
  }

  #ended(id: RequestId, controller: AbortController): void {
    const controllers = this.#running.get(id);
    controllers?.delete(controller);
    if (controllers?.size === 0) this.#running.delete(id);
  }

  /** @returns a function that reads the candidate, whose errors are the candidate's */
  #reader({ frozen, bundle, candidate }: Params): () => PolicyBundle {
    const originals = originalsOf(frozen);
    return () => (bundle === undefined ? this.#ofTexts(candidate, originals) : bundleOf(bundle, originals));
  }

  #ofTexts(candidate: unknown, originals: Texts): PolicyBundle {
    if (typeof candidate !== 'object' || candidate === null || Array.isArray(candidate)) {
      throw configError('params.candidate', 'is missing', 'Give it a text for each slot, or give a bundle.');
    }
    const texts = candidate as Texts;
    for (const [slot, original] of Object.entries(originals)) {
      if (typeof texts[slot] === 'string') checkFrozen(slot, texts[slot], original);
    }
    return bundleOfTexts(texts, this.base);
  }

  async #evaluate(id: RequestId, params: Params, read: () => PolicyBundle): Promise<ServiceAnswer> {
    const suite = suiteOf(params.suite);
    const cases = casesOf(params.cases, this.#options.evaluator.caseIds(suite));
    const wallMs = wallMsOf(params.limits) ?? this.#options.wallMs ?? WALL_MS;
    const controller = new AbortController();
    let timer: NodeJS.Timeout | undefined;
    // from here on a request for `cancel` finds it, also while its candidate is bound
    this.#began(id, controller);
    try {
      let bundle: PolicyBundle;
      try {
        bundle = read();
        await untilAborted(bindBundle(bundle), controller.signal);
      } catch (error) {
        return await this.#failed(errorOf(error));
      }
      // the baseline that candidates are compared with: no candidate answers for its time or its failure
      await this.#baseline(suite, controller.signal);
      timer = setTimeout(() => controller.abort(timeout(overTime(wallMs))), wallMs);
      const evaluation = await this.#ask(bundle, suite, controller.signal);
      const artifacts = { outcome: outcomeText(evaluation, this.#options.evaluator.objectiveNames) };
      const more = await this.#options.artifactsOf?.(bundle, evaluation, suite);
      const answer = answerOf(evaluation, bundle, this.#options.evaluator.objectiveNames, {
        ...artifacts,
        ...more,
      });
      return cases === undefined
        ? answer
        : { ...answer, per_scenario: answer.per_scenario.filter((each) => cases.includes(each.id)) };
    } catch (error) {
      if (!(error instanceof PolicyError)) throw error; // the plan is at fault, or a file of it changed
      return this.#failed(errorOf(error));
    } finally {
      clearTimeout(timer);
      this.#ended(id, controller);
    }
  }

  async #baseline(suite: SuiteName, signal: AbortSignal): Promise<void> {
    await untilAborted(this.#options.evaluator.evaluate([], suite, signal), signal);
  }

  /** The evaluation. Rejects with the reason of an abort at once, without waiting for the evaluator. */
  async #ask(bundle: PolicyBundle, suite: SuiteName, signal: AbortSignal): Promise<Evaluation> {
    const [evaluation] = await untilAborted(
      this.#options.evaluator.evaluate([bundle], suite, signal),
      signal,
    );
    return evaluation;
  }

  async #failed(error: EvaluationError): Promise<ServiceAnswer> {
    // a failed baseline is tried again with the next candidate that needs it
    this.#metricNames ??= this.#options.evaluator
      .evaluate([baseline], 'train')
      .then(([{ metrics }]) => Object.keys(metrics))
      .catch(() => {
        this.#metricNames = null;
        return [];
      });
    return failure(error, await this.#metricNames, this.#options.evaluator.objectiveNames);
  }

  async #validate(params: Params): Promise<{ valid: boolean; error?: EvaluationError }> {
    const read = this.#reader(params);
    try {
      await bindBundle(read());
      return { valid: true };
    } catch (error) {
      return { valid: false, error: errorOf(error) };
    }
  }
}

/** The result of the work. Rejects with the reason of an abort at once. */
function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const aborted = new Promise<never>((_, reject) => {
    if (signal.aborted) reject(signal.reason);
    signal.addEventListener('abort', () => reject(signal.reason), { once: true });
  });
  return Promise.race([work, aborted]);
}

function overTime(wallMs: number): string {
  const remedy = 'Raise it (deadline_s of the Python client), or name a smaller plan';
  return `it ran longer than limits.wallMs, ${wallMs} ms. ${remedy}`;
}

function timeout(why: string): PolicyError {
  return new PolicyError('infrastructure_timeout', `${why}. It says nothing about the policy's decisions`);
}

/** The fault of a candidate: a kind of policy error, `contract` for a bundle that cannot be read. */
function errorOf(error: unknown): EvaluationError {
  if (!(error instanceof TierKVError)) throw error;
  const kind = 'kind' in error ? String(error.kind) : 'contract';
  return { kind, message: error.message, ...(error.line === undefined ? {} : { line: error.line }) };
}

function codeOf(error: unknown): string {
  return error instanceof TierKVError ? error.code : 'TKV_FAULT';
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The score in a few lines, case by case. */
function outcomeText({ score, objectives, cases = [], error }: Evaluation, names: readonly string[]): string {
  if (error !== undefined) return `failed: ${error.message}`;
  const percent = (gain: number): string => `${gain >= 0 ? '+' : ''}${(100 * gain).toFixed(2)} %`;
  const all = names.map((name, i) => `${name} ${percent(objectives[i] ?? 0)}`).join(', ');
  const lines = cases.map((each) => `- ${each.id}: ${percent(each.score)}`);
  return [`Against the baseline: ${percent(score)} (${all}).`, ...lines].join('\n');
}
