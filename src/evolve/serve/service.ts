/**
 * The evaluator behind a wire: requests with a method and parameters, each answered once, in any order, many
 * at a time. A candidate at fault gets an answer like every other one; only a request at fault gets an error.
 *
 * Methods: `evaluate`, `validate`, `describe`, `baseline`, `cancel`, `status`. `shutdown` is the transport's.
 */

import { configError, TierKVError } from '../../runtime/errors.ts';
import { PolicyError } from '../../sim/sandbox/index.ts';
import { bindBundle } from '../binding/index.ts';
import {
  baseline,
  describePolicies,
  descriptionText,
  type PolicyBundle,
  readBundle,
} from '../bundle/index.ts';
import type { Evaluation, EvaluationError, Evaluator, SuiteName } from '../fitness/evaluation.ts';
import { metricDescriptions, metricsText } from '../fitness/index.ts';
import { type Answer, answerOf, failure } from './answer.ts';
import { bundleOfTexts, checkFrozen, type Texts } from './candidate.ts';
import {
  casesOf,
  checked,
  idOf,
  type Method,
  type Params,
  type RequestId,
  slotsOf,
  suiteOf,
  wallMsOf,
} from './requests.ts';

export type Response =
  | { readonly id: RequestId; readonly result: unknown }
  | { readonly id: RequestId; readonly error: { readonly code: string; readonly message: string } };

export interface ServiceOptions {
  readonly evaluator: Evaluator;
  /** What texts are put on top of. Default: the baseline. */
  readonly base?: PolicyBundle;
  /** Wall-clock limit of a candidate in ms, where a request gives none. A candidate over it has failed. */
  readonly wallMs?: number;
  /** Texts about a candidate that ran, for the next prompt. */
  readonly artifactsOf?: (bundle: PolicyBundle, evaluation: Evaluation, suite: SuiteName) => Promise<Texts>;
}

const WALL_MS = 120_000;
export class EvaluationService {
  readonly #options: ServiceOptions;
  /** Clients number their requests on their own, so several may have the same id. */
  readonly #running: Map<RequestId, Set<AbortController>> = new Map();
  #metricNames: Promise<readonly string[]> | null = null;
  #answered = 0;

  constructor(options: ServiceOptions) {
    this.#options = options;
  }

  get base(): PolicyBundle {
    return this.#options.base ?? baseline;
  }

  /** Answers a request that came as JSON. Never rejects. */
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

  /** Ends all that runs; each gets its answer. */
  close(): void {
    for (const id of this.#running.keys()) this.#abort(id, 'the evaluator shuts down');
  }

  async #run(id: RequestId, method: Method, params: Params): Promise<unknown> {
    switch (method) {
      case 'evaluate':
        return this.#evaluate(id, params, (read) => read());
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

  /** Whether anything of that id ran. */
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

  #read(params: Params): PolicyBundle {
    const { bundle, candidate, frozen } = params;
    if (bundle !== undefined) return readBundle(bundle);
    if (typeof candidate !== 'object' || candidate === null || Array.isArray(candidate)) {
      throw configError('params.candidate', 'is missing', 'Give it a text for each slot, or give a bundle.');
    }
    const texts = candidate as Texts;
    const originals = (frozen ?? {}) as Texts;
    for (const [slot, original] of Object.entries(originals)) {
      if (typeof texts[slot] === 'string') checkFrozen(slot, texts[slot], original);
    }
    return bundleOfTexts(texts, this.base);
  }

  async #evaluate(
    id: RequestId,
    params: Params,
    choose: (read: () => PolicyBundle) => PolicyBundle,
  ): Promise<Answer> {
    const suite = suiteOf(params.suite);
    const cases = casesOf(params.cases, this.#options.evaluator.caseIds(suite));
    const wallMs = wallMsOf(params.limits) ?? this.#options.wallMs ?? WALL_MS;
    let bundle: PolicyBundle;
    try {
      bundle = choose(() => this.#read(params));
      await bindBundle(bundle);
    } catch (error) {
      return this.#failed(errorOf(error));
    }
    const controller = new AbortController();
    let timer: NodeJS.Timeout | undefined;
    this.#began(id, controller);
    try {
      // what candidates are compared with: its time is no candidate's, and its failure neither
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

  /** The evaluation, or the reason of the abort as soon as it comes, whatever the evaluator makes of it. */
  async #ask(bundle: PolicyBundle, suite: SuiteName, signal: AbortSignal): Promise<Evaluation> {
    const [evaluation] = await untilAborted(
      this.#options.evaluator.evaluate([bundle], suite, signal),
      signal,
    );
    return evaluation;
  }

  async #failed(error: EvaluationError): Promise<Answer> {
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
    try {
      await bindBundle(this.#read(params));
      return { valid: true };
    } catch (error) {
      return { valid: false, error: errorOf(error) };
    }
  }
}

/** What comes of the work, or the reason of the abort as soon as it comes. */
function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const aborted = new Promise<never>((_, reject) => {
    if (signal.aborted) reject(signal.reason);
    signal.addEventListener('abort', () => reject(signal.reason), { once: true });
  });
  return Promise.race([work, aborted]);
}

function overTime(wallMs: number): string {
  const remedy = 'Raise it (deadline_s of the Python client), or name a smaller plan with --plan';
  return `it ran longer than limits.wallMs, ${wallMs} ms. ${remedy}`;
}

function timeout(why: string): PolicyError {
  return new PolicyError('infrastructure_timeout', `${why}. It says nothing about the policy's decisions`);
}

/** What is wrong with a candidate: a kind of policy error, `contract` for a bundle that cannot be read. */
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
