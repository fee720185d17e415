/**
 * From all deployments to the cheapest that meets the targets: bounds first, then short runs that find for each kind of
 * deployment the fewest instances, then kinds that could save an instance, then full runs of the cheapest, each on several
 * seeds. Every round waits for all its runs, so the course does not depend on threads. More instances of one kind are taken
 * to serve no worse.
 */

import { flagOf } from '../../sim/description/knobs.ts';
import { sizedTierNames } from '../../sim/links/machineTiers.ts';
import { type Excluded, isSteadyTraffic, machineBounds, type Traffic, trafficOf } from './bounds.ts';
import {
  byCost,
  costOf,
  type DeploymentChoice,
  defaultBatchedTokens,
  defaultSequences,
  type RoutingName,
} from './choice.ts';
import { type CheckedQuestion, ofTiers } from './question.ts';
import { FULL_MAX, missingS, settleS, type Trials, type Tried } from './trials.ts';

/** A deployment without its number of instances. */
type Kind = Omit<DeploymentChoice, 'instances' | 'prefillInstances'> & {
  /** Share of the instances that compute prompts only; 0: each instance does both. */
  readonly prefillShare: number;
};

/** A kind, with the numbers of instances that are known to be too few and enough. */
interface Family {
  readonly kind: Kind;
  /** Fewest instances by the bounds. */
  readonly least: number;
  /** Largest number of instances that failed. */
  tooFew: number;
  /** Smallest number of instances that met the targets. */
  enough: number | undefined;
  /** Most instances to try: more have too many GPUs, or cost more than what was found. */
  readonly most: number;
  /** Number of instances to try first, where that is not `least`. */
  readonly first?: number;
}

/** A machine that the bounds left out, with the reason. */
export interface ExcludedMachine {
  readonly gpu: string;
  readonly tensorParallel: number;
  /** The kind of its lack. */
  readonly why: Excluded['why'];
  readonly reason: string;
}

export interface Found {
  /** Cheapest deployment that met the targets on all seeds; undefined where none did. */
  readonly best: Tried | undefined;
  /** Runs of the best deployment on other seeds. */
  readonly onSeeds: readonly Tried[];
  /** Other deployments that met the targets in a full run, the cheapest first. */
  readonly others: readonly Tried[];
  /** Cheaper deployments that missed a target, the dearest first. */
  readonly cheaper: readonly Tried[];
  /** The best of the other way to share the work: instances that do all beside prefill and decode apart. */
  readonly beaten: Tried | undefined;
  /** Why the question has no answer; nothing was run then. */
  readonly unknown: string | undefined;
  /** Machines that may do it, with the fewest instances by the bounds. */
  readonly bounded: readonly DeploymentChoice[];
  /** Deployment that came nearest to the targets, where none met them. */
  readonly closest: Tried | undefined;
  readonly excluded: readonly ExcludedMachine[];
  /** Machines that the time for bounds did not reach, as `2 H100`. */
  readonly unseen: readonly string[];
  /** Undefined where no machine holds the model. */
  readonly traffic: Traffic | undefined;
  /** Requests of a full run. */
  readonly requests: number;
  /** Whether the search ended before its time did. */
  readonly isWhole: boolean;
}

/** Progress of a search. */
export interface PlanStage {
  readonly stage: 'bounds' | 'short runs' | 'variants' | 'full runs' | 'how sure';
  /** Share of the stage that is done. */
  readonly share: number;
}

/** Milliseconds left until that share of the budget is used. */
export type TimeLeft = (share: number) => number;

/** Shares of the budget after which bounds, short runs and full runs end: what comes behind them needs the rest. */
const BOUNDS_END = 0.1;
const SHORT_RUNS_END = 0.55;
const FULL_RUNS_END = 0.85;

/** Seconds of traffic that a full run of a preset serves, and its least requests. */
const FULL_S = 120;
const FULL_MIN = 1000;
/** Share of a full run's requests that a short run serves: long enough for batches to fill. */
const SHORT_SHARE = 1 / 3;
/** Least requests of a short run: percentiles of fewer say little. Where longer ones do not end in time, these take their place. */
const SHORT_MIN = 300;
/** Deployments that get a full run in one round. */
const FINALISTS = 3;
/** Machines whose variants are tried: those nearest to the targets below the cost of the best. */
const VARIED_MACHINES = 2;
/** A deployment that missed a target in a short run by less than this factor is run whole: the percentiles of few requests are rough. */
const NEAR_MISS = 1.25;
/** Other engines: longer steps for prompts, shorter ones for answers, larger batches for throughput. */
const engineVariants = [
  { batchedTokens: 8192 },
  { batchedTokens: 512 },
  { sequences: 1024 },
  { batchedTokens: 8192, sequences: 1024 },
] as const;
/** Factor of the load that a deployment should bear, where another engine setting reaches it at no cost. */
export const SPARE_LOAD = 1.1;

export class PlanSearch {
  readonly #question: CheckedQuestion;
  readonly #trials: Trials;
  readonly #timeLeft: TimeLeft;
  readonly #tell: (stage: PlanStage) => void;
  readonly #excluded: ExcludedMachine[] = [];
  readonly #unseen: string[] = [];
  readonly #tried: Tried[] = [];
  #traffic: Traffic | undefined;
  #requests = 0;
  /** Requests of a run before its rate is reached. */
  #settling = 0;
  #unknown: string | undefined;
  #isWhole = true;

  constructor(trials: Trials, timeLeft: TimeLeft, tell: (stage: PlanStage) => void) {
    this.#question = trials.question;
    this.#trials = trials;
    this.#timeLeft = timeLeft;
    this.#tell = tell;
  }

  async run(): Promise<Found> {
    this.#tell({ stage: 'bounds', share: 0 });
    const families = this.#families();
    const traffic = this.#traffic;
    const bounded = families.map(({ kind, least }) => choiceOf(kind, least));
    this.#trials.isSteady = traffic !== undefined && isSteadyTraffic(traffic);
    await this.#narrow(families, 'short runs');
    await this.#narrow(this.#variants(families, traffic?.sharesNothing === true), 'variants', families);
    const { best, onSeeds, others } = await this.#finals(families);
    const beaten = best === undefined ? undefined : await this.#beatenBy(best.trial.choice);
    const cost = best === undefined ? Infinity : costOf(best.trial.choice, this.#question);
    const failed = this.#judgedBest(({ meets }) => !meets);
    const dearestFirst = (a: Tried, b: Tried): number =>
      byCost(this.#question)(b.trial.choice, a.trial.choice) || b.result.injected - a.result.injected;
    const closest = [...failed].sort((a, b) => a.excess - b.excess || dearestFirst(b, a))[0];
    return {
      best,
      onSeeds,
      others,
      cheaper: failed
        .filter(({ trial }) => costOf(trial.choice, this.#question) < cost)
        .sort((a, b) => dearestFirst(a, b)),
      beaten,
      unknown: this.#unknown,
      bounded,
      closest: best === undefined ? closest : undefined,
      excluded: this.#excluded,
      unseen: this.#unseen,
      traffic,
      requests: this.#requests,
      isWhole: this.#isWhole,
    };
  }

  /**
   * A family for each machine that holds the model and may meet the targets. Where the bounds leave none, nothing is run. The first
   * that holds it is looked at whatever the time, since the traffic is read there.
   */
  #families(): Family[] {
    const { gpus, tensorParallel, maxGpus, targets, workload } = this.#question;
    const machines = gpus.flatMap((gpu) => tensorParallel.map((tp) => this.#kind(gpu, tp)));
    const asked = workload.requests;
    const isLate = (): boolean => this.#timeLeft(BOUNDS_END) <= 0;
    const families: Family[] = [];
    for (const kind of machines) {
      const { gpu, tensorParallel: tp } = kind;
      if (tp > maxGpus) {
        const reason = `it has ${tp} GPUs, and a deployment may have ${maxGpus}`;
        this.#excluded.push({ gpu, tensorParallel: tp, why: 'too few GPUs', reason });
        continue;
      }
      if (this.#traffic !== undefined && isLate()) {
        this.#unseen.push(`${tp} ${gpu}`);
        continue;
      }
      const plan = (): ReturnType<Trials['planOf']> =>
        this.#trials.planOf({
          choice: choiceOf(kind, 1),
          requests: asked ?? (workload.preset === undefined ? undefined : FULL_MAX),
          seed: this.#question.seed,
        });
      // the traffic is the same on every machine that holds the model
      const { excluded, instances: least } = machineBounds(
        plan,
        (planned) => (this.#traffic ??= trafficOf(planned, isLate)),
        targets,
      );
      if (excluded !== undefined) this.#excluded.push({ gpu, tensorParallel: tp, ...excluded });
      if (least === undefined || excluded !== undefined) continue;
      const most = Math.floor(maxGpus / tp);
      if (least > most) {
        const reason = `the traffic needs at least ${least} instances, ${least * tp} GPUs`;
        this.#excluded.push({ gpu, tensorParallel: tp, why: 'too much traffic', reason });
        continue;
      }
      families.push({ kind, least, tooFew: tooFewOf(kind, least), enough: undefined, most });
    }
    if (this.#unseen.length > 0 || this.#traffic?.isWhole === false) this.#isWhole = false;
    if (this.#traffic === undefined) return [];
    const { perS, requests, pausesS } = this.#traffic;
    if (pausesS > 0 && workload.rate !== undefined) return this.#settled(families, workload.rate, pausesS);
    const wanted = asked ?? (workload.preset === undefined ? FULL_MAX : Math.ceil(perS * FULL_S));
    this.#requests = Math.min(requests, asked ?? Math.min(FULL_MAX, Math.max(FULL_MIN, wanted)));
    return families;
  }

  /** Runs of conversations are as long as these take to come to their rate, and as a full run beyond. */
  #settled(families: Family[], rate: number, pausesS: number): Family[] {
    const { requests: asked } = this.#question.workload;
    this.#settling = Math.ceil(rate * (settleS(pausesS) - missingS(pausesS)));
    this.#trials.pausesS = pausesS;
    const judged = Math.min(FULL_MAX, Math.max(FULL_MIN, Math.ceil(rate * FULL_S)));
    const least = this.#settling + SHORT_MIN;
    this.#requests = asked ?? this.#settling + judged;
    if (this.#requests >= least) return families;
    const flag = flagOf('workload.requests');
    this.#unknown =
      `${this.#requests} requests do not come to ${rate} a second: conversations last ${Math.round(pausesS)} s, and each brings its ` +
      `rounds one after the other. Give ${flag} ${least} or more, or leave it out`;
    return [];
  }

  #kind(gpu: string, tensorParallel: number): Kind {
    // where only prefill and decode apart are asked for, nothing else is looked at
    const prefillShare = this.#question.roles.includes('shared') ? 0 : 0.5;
    const plain = { prefillShare, ...noTiers(), eviction: 'lru' } as const;
    const routing: RoutingName = 'least-loaded';
    const engine = { batchedTokens: defaultBatchedTokens, sequences: defaultSequences };
    return { gpu, tensorParallel, routing, ...engine, ...plain };
  }

  /**
   * Short runs until each family knows its fewest instances, or costs more than another that is enough: doubling, then
   * halving. @param others families that found something before
   */
  async #narrow(
    families: Family[],
    stage: PlanStage['stage'],
    others: readonly Family[] = [],
  ): Promise<void> {
    const all = [...others, ...families];
    // a file may have fewer
    const settling = this.#settling;
    const atMost = (judged: number): number => Math.min(this.#requests, settling + judged);
    let requests = atMost(Math.max(SHORT_MIN, Math.round((this.#requests - settling) * SHORT_SHARE)));
    let end = SHORT_RUNS_END;
    for (;;) {
      const open = families.flatMap((family) => {
        const next = this.#next(family, this.#cheapest(all));
        return next === undefined ? [] : [{ family, next }];
      });
      this.#tell({ stage, share: families.length === 0 ? 1 : 1 - open.length / families.length });
      if (open.length === 0) break;
      if (this.#timeLeft(end) <= 0) {
        this.#isWhole = false;
        if (this.#tried.length > 0 || requests === atMost(SHORT_MIN)) break;
        // no run has ended: the time of full runs goes to the shortest, so that there is an answer
        requests = atMost(SHORT_MIN);
        end = FULL_RUNS_END;
      }
      const tried = await this.#runAll(
        open.map(({ family, next }) => choiceOf(family.kind, next)),
        requests,
        end,
      );
      for (const [i, { family, next }] of open.entries()) {
        const one = tried[i];
        if (one?.meets === true) family.enough = next;
        else if (one !== undefined) family.tooFew = next;
      }
    }
    if (others.length > 0) (others as Family[]).push(...families);
  }

  /** Cost of the cheapest family that met the targets; Infinity for none. */
  #cheapest(families: readonly Family[]): number {
    const costs = families.flatMap(({ kind, enough }) =>
      enough === undefined ? [] : [costOf(choiceOf(kind, enough), this.#question)],
    );
    return Math.min(Infinity, ...costs);
  }

  /** Number of instances that a family tries next; undefined where its search is over. */
  #next({ kind, tooFew, enough, most, first }: Family, cheapest: number): number | undefined {
    const isDear = (count: number): boolean => costOf(choiceOf(kind, count), this.#question) > cheapest;
    if (enough !== undefined) {
      // fewer instances may still be cheaper than the best, even where `enough` is not
      if (enough - tooFew <= 1 || isDear(tooFew + 1)) return undefined;
      return (tooFew + enough) >> 1;
    }
    const least = tooFew + 1;
    if (least > most || isDear(least)) return undefined;
    if (first !== undefined && first >= least) return isDear(first) ? undefined : first;
    let next = Math.min(most, Math.max(least, 2 * tooFew));
    while (next > least && isDear(next)) next--;
    return next;
  }

  /** Kinds that may be cheaper than the best, on the machines that came nearest to the targets below its cost. */
  #variants(families: readonly Family[], sharesNothing: boolean): Family[] {
    const cheapest = this.#cheapest(families);
    const nearest = (one: Family): number =>
      Math.min(
        ...this.#tried
          .filter(({ trial, meets }) => !meets && isOf(one.kind, trial.choice))
          .map(({ excess }) => excess),
      );
    const machines = families
      .filter(({ kind, least }) => costOf(choiceOf(kind, least), this.#question) < cheapest)
      .sort((a, b) => nearest(a) - nearest(b));
    const { roles } = this.#question;
    return machines.slice(0, VARIED_MACHINES).flatMap(({ kind, least, most }) => {
      const kinds: Kind[] = engineVariants.map((engine) => ({ ...kind, ...engine }));
      if (roles.includes('split') && roles.includes('shared')) {
        for (const prefillShare of [0.25, 0.5]) kinds.push({ ...kind, prefillShare });
      }
      if (!sharesNothing) {
        kinds.push({ ...kind, routing: 'prefix-and-load' });
        for (const tiers of tierSizes(this.#question)) {
          kinds.push({ ...kind, routing: 'prefix-and-load', eviction: 'hazard', ...tiers });
        }
      }
      return kinds.flatMap((each): Family[] => {
        // the largest number that is still cheaper goes first: if it fails, the kind cannot save anything
        let first = most;
        while (first > 0 && costOf(choiceOf(each, first), this.#question) >= cheapest) first--;
        if (first < least) return [];
        return [{ kind: each, tooFew: tooFewOf(each, least), least, enough: undefined, most: first, first }];
      });
    });
  }

  async #finals(families: readonly Family[]): Promise<Pick<Found, 'best' | 'onSeeds' | 'others'>> {
    const { seed, seeds } = this.#question;
    const passed: Tried[] = [];
    const order = byCost(this.#question);
    const candidates = families.flatMap((family) => {
      const { kind, enough, most } = family;
      const sure = enough === undefined ? [] : [{ kind, count: enough, most }];
      return [...sure, ...this.#nearMisses(family).map((count) => ({ kind, count, most: count }))];
    });
    // a recorded trace is one course of events: another seed would be the same run
    const otherSeeds = Array.from(
      { length: this.#traffic?.isGenerated === true ? seeds : 0 },
      (_, i) => seed + 1 + i,
    );
    for (let round = 0; ; round++) {
      this.#tell({ stage: 'full runs', share: round / (round + candidates.length + 1) });
      const isLate = this.#timeLeft(FULL_RUNS_END) <= 0;
      candidates.sort((a, b) => order(choiceOf(a.kind, a.count), choiceOf(b.kind, b.count)));
      const [first] = passed.sort((a, b) => order(a.trial.choice, b.trial.choice));
      const cheaper = candidates.filter(
        ({ kind, count }) => first === undefined || order(choiceOf(kind, count), first.trial.choice) < 0,
      );
      if (isLate && cheaper.length > 0) this.#isWhole = false;
      if (first !== undefined && (isLate || cheaper.length === 0)) {
        const onSeeds = ended(
          await this.#runAll([first.trial.choice], this.#requests, FULL_RUNS_END, otherSeeds),
        );
        passed.splice(passed.indexOf(first), 1);
        if (onSeeds.every(({ meets }) => meets)) {
          return { ...(await this.#sturdier(first, onSeeds)), others: passed };
        }
        const again = this.#again(families, first.trial.choice);
        if (again.count <= again.most) candidates.push(again);
        continue;
      }
      if (cheaper.length === 0 || isLate) break;
      const taken = cheaper.slice(0, FINALISTS);
      const tried = await this.#runAll(
        taken.map(({ kind, count }) => choiceOf(kind, count)),
        this.#requests,
        FULL_RUNS_END,
      );
      for (const [i, one] of taken.entries()) {
        const full = tried[i];
        if (full === undefined) continue;
        candidates.splice(candidates.indexOf(one), 1);
        if (full.meets) passed.push(full);
        else if (one.count < one.most) candidates.push({ ...one, count: one.count + 1 });
      }
    }
    // without the time for a full run, what met the targets in a short one is the answer
    const short = this.#tried.filter(({ trial, meets }) => {
      return meets && candidates.some(({ kind, count }) => isSame(choiceOf(kind, count), trial.choice));
    });
    const [best] = this.#isWhole ? [] : short.sort((a, b) => order(a.trial.choice, b.trial.choice));
    return { best, onSeeds: [], others: passed };
  }

  /** Runs that pass the filter, without short ones of deployments that were run whole. */
  #judgedBest(filter: (tried: Tried) => boolean): Tried[] {
    const isWhole = ({ trial }: Tried): boolean => (trial.requests ?? 0) >= this.#requests;
    const whole = this.#tried.filter(isWhole);
    return this.#tried.filter(
      (one) =>
        filter(one) && (isWhole(one) || !whole.some(({ trial }) => isSame(trial.choice, one.trial.choice))),
    );
  }

  /** Numbers of instances that missed a target in a short run by little, and had no full run. */
  #nearMisses({ kind }: Family): number[] {
    const ofKind = this.#tried.filter(({ trial }) => isOf(kind, trial.choice));
    const near = ofKind.filter(
      ({ trial, meets, excess }) => !meets && excess < NEAR_MISS && (trial.requests ?? 0) < this.#requests,
    );
    return [...new Set(near.map(({ trial }) => trial.choice.instances))];
  }

  /**
   * The best of the other role: of what was tried the cheapest that meets the targets, or what came nearest. Where none
   * was tried, a short run of as many instances says how they compare.
   */
  async #beatenBy(best: DeploymentChoice): Promise<Tried | undefined> {
    const { roles, maxGpus } = this.#question;
    const isSplit = best.prefillInstances > 0;
    if (!roles.includes(isSplit ? 'shared' : 'split')) return undefined;
    const isOther = ({ trial }: Tried): boolean => trial.choice.prefillInstances > 0 !== isSplit;
    const instances = Math.max(2, best.instances);
    if (!this.#tried.some(isOther) && !isSplit && instances * best.tensorParallel <= maxGpus) {
      const other = { ...best, instances, prefillInstances: instances >> 1 };
      const least = this.#settling + Math.round((this.#requests - this.#settling) * SHORT_SHARE);
      await this.#runAll(
        [other],
        Math.min(this.#requests, Math.max(this.#settling + SHORT_MIN, least)),
        FULL_RUNS_END,
      );
    }
    const order = byCost(this.#question);
    const [first] = this.#judgedBest(isOther).sort(
      (a, b) =>
        Number(b.meets) - Number(a.meets) ||
        (a.meets ? order(a.trial.choice, b.trial.choice) : a.excess - b.excess),
    );
    return first;
  }

  /** The same machines with another engine setting, where only that setting bears the spare load. */
  async #sturdier(
    best: Tried,
    onSeeds: readonly Tried[],
  ): Promise<{ best: Tried; onSeeds: readonly Tried[] }> {
    const { trial } = best;
    const same = { best, onSeeds };
    if ((this.#traffic?.perS ?? 0) === 0 || this.#timeLeft(FULL_RUNS_END) <= 0) return same;
    const others = engineVariants.map((engine) => ({ ...trial.choice, ...engine }));
    const more = [trial.choice, ...others].map((choice) =>
      this.#trials.atLoad({ ...trial, choice }, SPARE_LOAD),
    );
    const [own, ...loaded] = await this.#trials.run(more, () => this.#timeLeft(FULL_RUNS_END));
    if (own === undefined || own.meets) return same;
    const better = loaded.find((one) => one?.meets === true);
    if (better === undefined) return same;
    const seeds = [this.#question.seed, ...onSeeds.map((one) => one.trial.seed)];
    const again = await this.#runAll([better.trial.choice], this.#requests, FULL_RUNS_END, seeds);
    const [first, ...rest] = ended(again);
    const isSure = again.every((one) => one?.meets === true);
    return isSure && first !== undefined ? { best: first, onSeeds: rest } : same;
  }

  /** The same kind with one instance more. */
  #again(families: readonly Family[], choice: DeploymentChoice): { kind: Kind; count: number; most: number } {
    const family = families.find(({ kind }) => isOf(kind, choice)) as Family;
    return { kind: family.kind, count: choice.instances + 1, most: this.#mostOf(family.kind) };
  }

  #mostOf({ tensorParallel }: Kind): number {
    return Math.floor(this.#question.maxGpus / tensorParallel);
  }

  async #runAll(
    choices: readonly DeploymentChoice[],
    requests: number,
    end: number,
    seeds: readonly number[] = [this.#question.seed],
  ): Promise<(Tried | undefined)[]> {
    const trials = choices.flatMap((choice) => seeds.map((seed) => ({ choice, requests, seed })));
    const tried = await this.#trials.run(trials, () => this.#timeLeft(end));
    this.#tried.push(...ended(tried));
    if (tried.includes(undefined)) this.#isWhole = false;
    return tried;
  }
}

/** Instances that are too few whatever they do: prefill and decode apart need one each. */
function tooFewOf({ prefillShare }: Kind, least: number): number {
  return Math.max(least, prefillShare > 0 ? 2 : 1) - 1;
}

function ended(tried: readonly (Tried | undefined)[]): Tried[] {
  return tried.filter((one) => one !== undefined);
}

function choiceOf({ prefillShare, ...kind }: Kind, instances: number): DeploymentChoice {
  const prefill = prefillShare === 0 ? 0 : Math.max(1, Math.round(instances * prefillShare));
  return { ...kind, instances, prefillInstances: Math.min(prefill, Math.max(0, instances - 1)) };
}

function isOf(kind: Kind, choice: DeploymentChoice): boolean {
  return isSame(choiceOf(kind, choice.instances), choice);
}

function isSame(own: DeploymentChoice, choice: DeploymentChoice): boolean {
  return (Object.keys(own) as (keyof DeploymentChoice)[]).every((name) => own[name] === choice[name]);
}

const noTiers = () => ofTiers('Gib', () => 0);

/** All mixtures of lower tier sizes with at least one tier; a tier has a size only where the tier above it has one. */
function tierSizes(question: CheckedQuestion): ReturnType<typeof noTiers>[] {
  let mixtures = [noTiers()];
  for (const [i, tier] of sizedTierNames.entries()) {
    const above = sizedTierNames[i - 1];
    mixtures = mixtures.flatMap((mixture) =>
      question[`${tier}Gib`]
        .filter((size) => size === 0 || above === undefined || mixture[`${above}Gib`] > 0)
        .map((size) => ({ ...mixture, [`${tier}Gib`]: size })),
    );
  }
  return mixtures.filter((mixture) => sizedTierNames.some((tier) => mixture[`${tier}Gib`] > 0));
}
