/**
 * The real engine with an instance scheduler of a bundle: as a request joins the queue of the instance, a
 * program or tree gives it its rank. The shared scheduler goes by the rank when it forms batches and when
 * somebody has to give way; a rank does not change afterwards.
 */

import type { StateVisitor } from '../../runtime/snapshot/index.ts';
import { noMemory, type PlainState } from '../../sim/control/index.ts';
import type { MakeEngine } from '../../sim/deployment/index.ts';
import { SchedulerEngine, type SimRequest } from '../../sim/instance/index.ts';
import type { TreeNode } from '../bundle/index.ts';
import { type ArrivalFacts, arrivalFeatures } from '../features/index.ts';
import { rankOf } from './decisions.ts';
import { type LoadedCode, SlotProgram } from './slotProgram.ts';
import { DecisionTree } from './tree.ts';

/**
 * Gives a request its rank as it arrives at an instance. What it remembers is part of the instance's state.
 */
export interface ArrivalRanker {
  rank(facts: ArrivalFacts): number;
  snapshot(): PlainState;
  restore(state: PlainState): void;
}

class RankingEngine extends SchedulerEngine {
  readonly #ranker: ArrivalRanker;

  constructor(ranker: ArrivalRanker, ...parts: ConstructorParameters<typeof SchedulerEngine>) {
    super(...parts);
    this.#ranker = ranker;
  }

  override add(request: SimRequest, nowUs: number): void {
    request.priority = this.#ranker.rank({ request, engine: this, nowUs });
    super.add(request, nowUs);
  }

  override visitState(visitor: StateVisitor, requestOf: (row: number) => SimRequest): void {
    super.visitState(visitor, requestOf);
    visitor.value(
      () => this.#ranker.snapshot(),
      (saved) => this.#ranker.restore(saved),
    );
  }
}

export function rankerOfCode(code: LoadedCode): ArrivalRanker {
  const program = new SlotProgram('instanceScheduler', code);
  const writer = program.writer(0, arrivalFeatures);
  return {
    rank: (facts) => {
      writer.write(0, facts);
      return rankOf(program.decide(facts.request.id, facts.nowUs)[0]);
    },
    snapshot: () => program.snapshot(),
    restore: (state) => program.restore(state),
  };
}

export function rankerOfTree(root: TreeNode): ArrivalRanker {
  const tree = new DecisionTree('instanceScheduler', root);
  return { rank: (facts) => rankOf(tree.walk({ request: facts }).value ?? 0), ...noMemory };
}

/** @param makeRanker called once for each instance: what one remembers, no other sees */
export function rankingEngine(makeRanker: () => ArrivalRanker): MakeEngine {
  return ({ engine }, timeline, woken) => new RankingEngine(makeRanker(), engine, timeline, woken);
}
