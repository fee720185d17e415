/**
 * `plan`: from a question to the cheapest deployment that meets its targets, with how sure that is, what would be the next
 * constraint, and what was near. The search runs simulations on workers; what it finds does not depend on how many there are.
 */

import { availableParallelism } from 'node:os';
import { type TaskRunner, WorkerPool } from '../../io/workerPool.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs, type Kinds, optionTable } from '../../runtime/options.ts';
import { latencyModelsThat } from '../../sim/latency/latencyNames.ts';
import { sizedTierNames } from '../../sim/links/machineTiers.ts';
import {
  choiceText,
  type DeploymentChoice,
  deploymentFile,
  gpusOf,
  modelOfTime,
  simulateWords,
  usdPerHour,
} from './choice.ts';
import { type CheckedQuestion, checkQuestion, type PlanQuestion } from './question.ts';
import {
  type ExcludedMachine,
  type Found,
  PlanSearch,
  type PlanStage,
  SPARE_LOAD,
  type TimeLeft,
} from './search.ts';
import type { FigureName, TargetMeasured } from './targets.ts';
import type { TrialResult, TrialTasks } from './trial.ts';
import { isGrowing, type PlanTrial, settleS, Trials, type Tried } from './trials.ts';

/** A deployment that was tried, with the figures of its run. */
export interface PlanOption {
  readonly deployment: DeploymentChoice;
  /** The deployment in few words, such as `2 instances x 4 H100`. */
  readonly text: string;
  readonly gpus: number;
  /** Undefined without prices. */
  readonly usdPerHour: number | undefined;
  readonly meets: boolean;
  readonly targets: readonly TargetMeasured[];
  /** Requests that came, and how many of them were served whole. */
  readonly injected: number;
  readonly completed: number;
  /** Whether all requests of the question were run, or a part: percentiles of few requests are rough. */
  readonly restsOn: 'short run' | 'whole run';
  readonly run: Omit<TrialResult, 'injected' | 'completed'>;
}

/** Whether the deployment still meets the targets when one assumption changes. */
export interface PlanCheck {
  /** `seed 43`, `10 % more requests`, `time by roofline`. */
  readonly change: string;
  readonly meets: boolean;
  readonly targets: readonly TargetMeasured[];
  /** Why it could not be tried. */
  readonly untried?: string;
}

/** The first constraint that more requests would reach. */
export interface NextConstraint {
  /** Largest load tried that met the targets, and smallest that did not, as factors of the question's; 0 for none. */
  readonly meetsAt: number;
  readonly failsAt: number;
  /** The figure that fails first; undefined where requests are not served or the queue grows. */
  readonly figure: FigureName | undefined;
  /** Resource that is short. */
  readonly cause: 'KV memory' | 'the queue' | 'prompts' | 'the steps';
  readonly text: string;
}

/** The cheapest deployment that met the targets, the checks of it, and what was tried. */
export interface PlanAnswer {
  readonly schema: 'tierkv.plan/1';
  readonly question: CheckedQuestion;
  /** The cheapest that met the targets on all seeds. Undefined: none did. */
  readonly choice: PlanOption | undefined;
  /** Checks of the choice: other seeds, more load, other models of time. */
  readonly checks: readonly PlanCheck[];
  readonly next: NextConstraint | undefined;
  /** Other deployments that met the targets, the cheapest first. */
  readonly others: readonly PlanOption[];
  /** Cheaper deployments that missed a target, the dearest first; at most eight. */
  readonly cheaper: readonly PlanOption[];
  /** The best of the other way to share the work: instances that do all beside prefill and decode apart. */
  readonly beaten: PlanOption | undefined;
  /** Deployment that came nearest to the targets, where no choice was found. */
  readonly closest: PlanOption | undefined;
  /** Why the question has no answer, such as runs too short for their rate; nothing was run then. */
  readonly unknown: string | undefined;
  readonly excluded: readonly ExcludedMachine[];
  /** The choice, or the closest, with each mixture of the sizes of tiers that were asked about. */
  readonly bySize: readonly PlanOption[];
  /** Sentences about the limits of the answer. */
  readonly notes: readonly string[];
  /** The deployment as a file for `tierkv simulate`; of the closest where no choice was found. */
  readonly deploymentFile: string | undefined;
  /** Arguments of `tierkv simulate` that run the deployment without a file; undefined where nothing was run. */
  readonly simulateWords: string | undefined;
  readonly effort: {
    readonly simulations: number;
    readonly requestsEach: number;
    /** Whether the search ended before its time was over. */
    readonly isWhole: boolean;
  };
}

interface PlanProgress extends PlanStage {
  /** Share of the whole search that is done. */
  readonly overall: number;
  readonly simulations: number;
  /** Cheapest deployment so far that met the targets, in few words. */
  readonly best: string | undefined;
}

/** Options of `plan` beside the question. */
export interface PlanOptions {
  /** Runs the simulations. Default: threads of this machine, closed at the end. */
  readonly runner?: TaskRunner<TrialTasks>;
  readonly progress?: (state: PlanProgress) => void;
  /** Milliseconds by which the budget is counted. Default: the clock of this process. */
  readonly clock?: () => number;
}

const planOptionsTable = optionTable({
  runner: is.optional(is.passed()),
  progress: is.optional(is.func()),
  clock: is.optional(is.func()),
} satisfies Kinds<PlanOptions>);

/** Share of the whole at which each stage begins; simulations of a full run take the most time. */
const stageStarts: Readonly<Record<PlanStage['stage'], readonly [start: number, length: number]>> = {
  bounds: [0, 0.02],
  'short runs': [0.02, 0.28],
  variants: [0.3, 0.25],
  'full runs': [0.55, 0.25],
  'how sure': [0.8, 0.2],
};

/** Loads to try, as factors of the question's, until a target fails. */
const loads = [SPARE_LOAD, 1.25, 1.5, 2, 3, 4];
/** Models of time that the answer is checked by. */
const modelsOfTime = latencyModelsThat('checksPlans');

/**
 * Answers a question about a deployment.
 * @throws {TierKVError} TKV_CONFIG naming the field of the question that is wrong
 */
export async function plan(question: PlanQuestion, options: PlanOptions = {}): Promise<PlanAnswer> {
  planOptionsTable.read(options);
  const checked = checkQuestion(question);
  const own = options.runner === undefined;
  const runner =
    options.runner ?? new WorkerPool<TrialTasks>({ workers: availableParallelism(), wallMs: Infinity });
  let stage: PlanStage = { stage: 'bounds', share: 0 };
  let best: Tried | undefined;
  const tell = (): void => {
    const [start, length] = stageStarts[stage.stage];
    options.progress?.({
      ...stage,
      overall: start + length * stage.share,
      simulations: trials.count,
      best: best && choiceText(best.trial.choice),
    });
  };
  const isCheaper = (a: Tried, b: Tried | undefined): boolean =>
    b === undefined || gpusOf(a.trial.choice) < gpusOf(b.trial.choice);
  const trials = new Trials(checked, runner, (tried) => {
    if (tried.meets && isCheaper(tried, best)) best = tried;
    tell();
  });
  const clock = options.clock ?? (() => performance.now());
  const startMs = clock();
  const left = (share: number): number => share * checked.budgetS * 1000 - (clock() - startMs);
  try {
    const search = new PlanSearch(trials, left, (now) => {
      stage = now;
      tell();
    });
    const found = await search.run();
    stage = { stage: 'how sure', share: 0 };
    tell();
    return await answerOf(checked, trials, found, left);
  } finally {
    if (own) await runner.close();
  }
}

async function answerOf(
  question: CheckedQuestion,
  trials: Trials,
  found: Found,
  left: TimeLeft,
): Promise<PlanAnswer> {
  const option = (tried: Tried): PlanOption => optionOf(tried, question, found.requests);
  const { best, closest, beaten, requests } = found;
  const shown = best ?? closest;
  const sure = best === undefined ? undefined : await howSure(question, trials, best, found, left);
  // the closest deployment may have had a short run only: the command repeats that run
  const setting = { seed: shown?.trial.seed ?? question.seed, requests: shown?.trial.requests ?? requests };
  const sized = shown === undefined ? [] : await bySize(question, trials, shown, found, left);
  const time = shown && modelOfTime(question.latencyModel, shown.trial.choice.gpu);
  return {
    schema: 'tierkv.plan/1',
    question,
    choice: best && option(best),
    checks: sure?.checks ?? [],
    next: sure?.next,
    others: onePerText(found.others.map(option)),
    cheaper: onePerText(found.cheaper.map(option)).slice(0, 8),
    beaten: beaten && option(beaten),
    closest: closest && option(closest),
    unknown: found.unknown,
    excluded: found.excluded,
    bySize: sized.map(option),
    notes: [...notesOf(question, found), ...calledOffNotes(trials)],
    deploymentFile: shown && time && deploymentFile(shown.trial.choice, question, setting, time),
    simulateWords: shown && time && simulateWords(shown.trial.choice, question, setting, time),
    effort: {
      simulations: trials.count,
      requestsEach: best?.trial.requests ?? requests,
      isWhole: found.isWhole && trials.calledOff.length === 0,
    },
  };
}

/** @param whole requests of a full run */
function optionOf(
  { trial, result, targets, meets }: Tried,
  question: CheckedQuestion,
  whole: number,
): PlanOption {
  const { injected, completed, ...run } = result;
  return {
    deployment: trial.choice,
    text: choiceText(trial.choice),
    gpus: gpusOf(trial.choice),
    usdPerHour: usdPerHour(trial.choice, question),
    meets,
    targets,
    injected,
    completed,
    restsOn: (trial.requests ?? Infinity) < whole ? 'short run' : 'whole run',
    run,
  };
}

/**
 * The command that runs what an answer names, or comes nearest; undefined where nothing was run.
 * @param file where its `deploymentFile` was written
 */
export function simulateCommandOf(answer: PlanAnswer, file?: string): string | undefined {
  checkInputs({ answer, file }, { answer: is.fields({ schema: is.text() }), file: is.optional(is.name()) });
  const { question, choice, closest, effort, simulateWords: words } = answer;
  const shown = choice ?? closest;
  if (shown === undefined) return undefined;
  if (file === undefined) return words && `tierkv simulate ${words}`;
  // the closest deployment may have had a short run only
  const requests = choice === undefined ? shown.injected : effort.requestsEach;
  const setting = { seed: question.seed, requests };
  const time = modelOfTime(question.latencyModel, shown.deployment.gpu);
  return `tierkv simulate ${simulateWords(shown.deployment, question, setting, time, file)}`;
}

/** The deployments that an answer shows, the cheapest first: what failed, the choice, what would do, and what the choice beat. */
export function shownOptions({ choice, closest, cheaper, others, beaten }: PlanAnswer): PlanOption[] {
  const best = choice ?? closest;
  const near = cheaper.filter(({ text }) => text !== closest?.text).toReversed();
  const all = [...near, ...(best === undefined ? [] : [best]), ...others];
  const isShown = beaten === undefined || all.some(({ text }) => text === beaten.text);
  return isShown ? all : [...all, beaten];
}

/** Whether the bounds left out each machine because it cannot hold the model, or has more GPUs than may be used. */
export function holdsNone({ excluded }: PlanAnswer): boolean {
  return excluded.every(({ why }) => why === 'does not fit' || why === 'too few GPUs');
}

/** The target that is nearest to its bound, or the farthest above it. */
export function decidingTarget({ targets }: PlanOption): TargetMeasured {
  return targets.reduce((most, one) => (one.ms / one.boundMs > most.ms / most.boundMs ? one : most));
}

/** A run of each size of a tier: the same deployment and traffic with nothing else changed. */
async function bySize(
  question: CheckedQuestion,
  trials: Trials,
  { trial }: Tried,
  { traffic, requests }: Found,
  left: TimeLeft,
): Promise<Tried[]> {
  // tiers hold what comes again: where no two requests share a prefix, nothing does
  if (!question.comparesTiers || traffic?.sharesNothing === true) return [];
  const mixtures = sizedTierNames.reduce<object[]>(
    (all, tier) =>
      all.flatMap((one) => question[`${tier}Gib`].map((size) => ({ ...one, [`${tier}Gib`]: size }))),
    [{}],
  );
  const runs = mixtures.map(
    (sizes): PlanTrial => ({ ...trial, requests, choice: { ...trial.choice, ...sizes } }),
  );
  return (await trials.run(runs, () => left(1))).filter((one) => one !== undefined);
}

/** The first run of each deployment. */
function onePerText(options: readonly PlanOption[]): PlanOption[] {
  return [...Map.groupBy(options, ({ text }) => text).values()].map(([first]) => first);
}

async function howSure(
  question: CheckedQuestion,
  trials: Trials,
  { trial }: Tried,
  { onSeeds, traffic }: Found,
  left: TimeLeft,
): Promise<{ checks: PlanCheck[]; next: NextConstraint | undefined }> {
  const others = modelsOfTime.filter((name) => name !== question.latencyModel);
  const canLoad = (traffic?.perS ?? 0) > 0;
  const byLoad: PlanTrial[] = canLoad ? loads.map((load) => trials.atLoad(trial, load)) : [];
  const asked: readonly PlanTrial[] = [
    ...others.map((latencyModel) => ({ ...trial, latencyModel })),
    ...byLoad,
  ];
  const results = await trials.run(asked, () => left(1));
  // a recorded trace is one course of events: another seed would be the same run
  const seeds = traffic?.isGenerated === true ? question.seeds : 0;
  const checks: PlanCheck[] = Array.from({ length: seeds }, (_, i) => {
    const seed = question.seed + 1 + i;
    return checkOf(
      `seed ${seed}`,
      onSeeds.find((one) => one.trial.seed === seed),
    );
  });
  const loaded = results.slice(others.length);
  if (canLoad) checks.push(checkOf(`${Math.round(100 * (loads[0] - 1))} % more requests`, loaded[0]));
  for (const [i, name] of others.entries()) checks.push(checkOf(`time by ${name}`, results[i]));
  return { checks, next: canLoad ? nextOf(loaded) : undefined };
}

function checkOf(change: string, tried: Tried | undefined): PlanCheck {
  if (tried === undefined) return { change, meets: false, targets: [], untried: 'the time was over' };
  return { change, meets: tried.meets, targets: tried.targets };
}

/** Notes on configurations that were not tried, since the time was over. */
function calledOffNotes({ calledOff }: Trials): string[] {
  if (calledOff.length === 0) return [];
  const names = [...new Set(calledOff.map(({ choice }) => choiceText(choice)))];
  const more = names.length > NAMED_MOST ? ` and ${names.length - NAMED_MOST} more` : '';
  const runs = calledOff.length === 1 ? 'a run was' : `${calledOff.length} runs were`;
  return [`the time was over, and ${runs} called off: of ${names.slice(0, NAMED_MOST).join('; ')}${more}`];
}

/** Deployments that a note names. */
const NAMED_MOST = 5;

/** @param loaded runs under ever more load */
function nextOf(loaded: readonly (Tried | undefined)[]): NextConstraint | undefined {
  const at = loaded.findIndex((one) => one?.meets !== true);
  const failing = loaded[at];
  if (failing === undefined) return undefined;
  const { result, targets } = failing;
  const failed = [...targets].sort((a, b) => b.ms / b.boundMs - a.ms / a.boundMs)[0];
  const figure = failed.meets ? undefined : failed.figure;
  const cause = causeOf(result, figure);
  const meetsAt = at === 0 ? 1 : loads[at - 1];
  const failsAt = loads[at];
  const what =
    figure === undefined
      ? isGrowing(result)
        ? 'the queue grows without end'
        : 'requests are not served'
      : `${figure} fails first`;
  const why = {
    'KV memory': `KV memory is full (${percent(result.kvShare)} held, ${result.preemptions} requests gave way)`,
    'the queue': `requests wait for a place in the batch (${result.delayP99Ms.toFixed(0)} ms at the 99th percentile)`,
    prompts: 'prompts take the steps from answers',
    'the steps': `instances compute ${percent(result.busyShare)} of the time`,
  }[cause];
  return { meetsAt, failsAt, figure, cause, text: `at ${failsAt} times the load ${what}: ${why}` };
}

function percent(share: number): string {
  return `${(100 * share).toFixed(0)} %`;
}

/** Share of KV memory in use from which memory counts as the constraint. */
const FULL_SHARE = 0.95;

function causeOf(
  { preemptions, kvShare, delayP99Ms, figures }: TrialResult,
  figure: FigureName | undefined,
): NextConstraint['cause'] {
  if (preemptions > 0 || kvShare >= FULL_SHARE) return 'KV memory';
  if (delayP99Ms > 0.5 * figures.ttft_p99) return 'the queue';
  return figure?.startsWith('ttft') === true ? 'prompts' : 'the steps';
}

function notesOf(
  question: CheckedQuestion,
  { traffic, best, closest, isWhole, requests, unseen, bounded, unknown }: Found,
): string[] {
  const notes: string[] = [];
  if (unknown !== undefined) return notes;
  const { latencyModel, prices, gpus, workload } = question;
  const shown = best ?? closest;
  const gpu = shown?.trial.choice.gpu;
  if (shown?.askedPerS !== undefined) {
    const from = `${Math.round(settleS(traffic?.pausesS ?? 0))} s`;
    notes.push(
      `latencies and rates are of the requests that came from ${from} on, when conversations had come to their rate: tierkv simulate has those of the whole run`,
    );
  }
  for (const each of gpus) {
    const { fittedOn } = modelOfTime(latencyModel, each);
    if (fittedOn === undefined) continue;
    notes.push(`times on ${each} are by efficiencies fitted on ${fittedOn}, and were not measured there`);
  }
  if (prices === undefined && gpus.length > 1) {
    notes.push('no prices were given, so that a GPU of one kind counts as one of another');
  }
  if (!isWhole) notes.push('the time ended before the search did: a cheaper deployment may exist');
  if (!isWhole && shown === undefined && bounded.length > 0) {
    const least = bounded.map(choiceText).join('; ');
    notes.push(`by bounds alone, which need no run, at least one of these is needed: ${least}`);
  }
  if (unseen.length > 0) {
    notes.push(`there was no time to look at instances of ${unseen.join(', ')}`);
  }
  if (traffic === undefined) return notes;
  if (!traffic.isWhole) {
    notes.push(
      `there was time to read ${traffic.prompts.count} requests of the workload, by which it is judged`,
    );
  }
  if (best?.trial.requests !== undefined && best.trial.requests < requests) {
    notes.push(
      `there was no time for a full run: the answer is by ${best.trial.requests} requests instead of ${requests}`,
    );
  }
  if (traffic.notice !== undefined) notes.push(traffic.notice.replace(/\.$/, ''));
  if (traffic.sharesNothing && gpu !== undefined) {
    notes.push(
      'no two requests share a prefix, so that tiers below GPU memory bring nothing and were not tried',
    );
  }
  if (workload.file !== undefined && !traffic.isGenerated) {
    notes.push('the trace is one course of events, so that it was not run under further seeds');
  }
  return notes;
}
