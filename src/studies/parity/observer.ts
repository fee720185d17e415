/**
 * Observer of a run, by its inputs and decisions: the same eye for a recorded run that is replayed and for a
 * simulation. A transfer takes from its issue to the input that says its end.
 */

import {
  SchedulerDecision,
  SchedulerInput,
  type SchedulerSink,
} from '../../runtime/batching/schedulerSink.ts';
import {
  DecisionOp,
  type DecisionSink,
  InputOp,
  linkName,
  type ManagerObserver,
  Outcome,
  type SchedulerHead,
  type Tier,
} from '../../runtime/index.ts';

/** One transfer between tiers that brought its bytes. */
export interface ObservedTransfer {
  readonly link: string;
  readonly from: Tier;
  readonly to: Tier;
  /** Number of the issue, from 0: the order in which links were given their transfers. */
  readonly issue: number;
  readonly issuedUs: number;
  readonly durationUs: number;
}

interface FoundBlocks {
  /** Full blocks of the prompts, less the last token, which is always computed. */
  lookups: number;
  /** Leading blocks that were there when the request first joined the batch. */
  blocks: number;
  /** The same by the tier that had them when they were looked up. */
  readonly byTier: number[];
}

/** Blocks of a match, by the position of their tier. */
type MatchedByTier = readonly number[];

const nothing: MatchedByTier = [];

export class RunObserver implements DecisionSink {
  readonly transfers: ObservedTransfer[] = [];
  readonly found: FoundBlocks;
  readonly tiers: readonly Tier[];
  readonly #flights: Map<number, Omit<ObservedTransfer, 'durationUs'>> = new Map();
  #issues = 0;
  #nowUs = 0;

  /** Full blocks of requests that have not joined the batch, by number. */
  readonly #asked: Map<number, number> = new Map();
  /** Blocks matched for requests that wait for their loads, by request number. */
  readonly #loading: Map<number, MatchedByTier> = new Map();
  /** Blocks that open sequences matched. */
  readonly #matched: Map<number, MatchedByTier> = new Map();
  /** The sequence of the last call. */
  #sequence = 0;
  /** Blocks that the opening sequence has found so far. */
  #opening: number[] = [];

  /** For the manager to observe: the log says of a match what lay in the two fastest tiers, and this in each. */
  readonly finds: ManagerObserver = {
    opened: () => {
      this.#opening = this.tiers.map(() => 0);
    },
    found: (_content, position) => {
      this.#opening[position]++;
    },
  };

  /** @param tiers of the manager, the top one first */
  constructor(tiers: readonly Tier[]) {
    this.tiers = tiers;
    this.found = { lookups: 0, blocks: 0, byTier: tiers.map(() => 0) };
  }

  get hitRate(): number {
    const { lookups, blocks } = this.found;
    return lookups === 0 ? 0 : blocks / lookups;
  }

  input(op: InputOp, nowUs: number, args: readonly number[]): void {
    this.#nowUs = nowUs;
    if (op === InputOp.ALLOCATE) this.#sequence = args[0];
    if (op === InputOp.RELEASE && args[1] === -1) this.#matched.delete(args[0]);
    if (op !== InputOp.COMPLETE) return;
    const [job, outcome] = args;
    const flight = this.#flights.get(job);
    this.#flights.delete(job);
    if (flight === undefined || outcome !== Outcome.LOADED) return;
    this.transfers.push({ ...flight, durationUs: nowUs - flight.issuedUs });
  }

  decision(op: DecisionOp, a: number, b: number, _c: number, d: number): void {
    if (op === DecisionOp.MATCH) {
      this.#sequence = a;
      this.#matched.set(a, this.#opening);
    }
    const isMove = op === DecisionOp.ISSUE && b !== -1 && b !== d;
    if (!isMove) return;
    const [from, to] = [this.tiers[b], this.tiers[d]];
    const link = linkName(from, to);
    this.#flights.set(a, { link, from, to, issue: this.#issues++, issuedUs: this.#nowUs });
  }

  scheduler({ blockTokens }: SchedulerHead): SchedulerSink {
    return {
      input: (op, _nowUs, number, promptTokens) => {
        if (op !== SchedulerInput.ADD) return;
        this.#asked.set(number, Math.floor((promptTokens - 1) / blockTokens));
      },
      decision: (op, number, foundTokens) => {
        const matched = this.#matched.get(this.#sequence) ?? nothing;
        if (op === SchedulerDecision.DEFER) this.#loading.set(number, matched);
        if (op === SchedulerDecision.ADMIT)
          this.#joined(number, Math.floor(foundTokens / blockTokens), matched);
      },
    };
  }

  /** @param last what was matched last: by this request, unless it waited for its loads meanwhile */
  #joined(number: number, blocks: number, last: MatchedByTier): void {
    const matched = this.#loading.get(number) ?? last;
    this.#loading.delete(number);
    const asked = this.#asked.get(number);
    if (asked === undefined) return; // it was in the batch before
    this.#asked.delete(number);
    this.found.lookups += asked;
    let left = Math.min(blocks, asked);
    this.found.blocks += left;
    for (const [tier, count] of matched.entries()) {
      if (tier === this.found.byTier.length) return;
      this.found.byTier[tier] += Math.min(count, left);
      left -= Math.min(count, left);
    }
  }
}

/** Both are told everything. */
export function bothSinks(first: DecisionSink, second: DecisionSink): DecisionSink {
  return {
    input(op, nowUs, args, words) {
      first.input(op, nowUs, args, words);
      second.input(op, nowUs, args, words);
    },
    decision(op, a, b, c, d, e) {
      first.decision(op, a, b, c, d, e);
      second.decision(op, a, b, c, d, e);
    },
    scheduler(head, nowUs) {
      const sinks = [first, second].flatMap((sink) => sink.scheduler?.(head, nowUs) ?? []);
      return {
        input(...given) {
          for (const sink of sinks) sink.input(...given);
        },
        decision(...decided) {
          for (const sink of sinks) sink.decision(...decided);
        },
        done() {
          for (const sink of sinks) sink.done?.();
        },
      };
    },
  };
}
