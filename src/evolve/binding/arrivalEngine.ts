/**
 * The real engine with an instance scheduler of a bundle: as a request joins the queue of the instance, a
 * program or tree gives it its rank. The shared scheduler goes by the rank when it forms batches and when
 * somebody has to give way; a rank does not change afterwards.
 */

import type { MakeEngine } from '../../sim/deployment/index.ts';
import { SchedulerEngine, type SimRequest } from '../../sim/instance/index.ts';
import type { TreeNode } from '../bundle/index.ts';
import { type ArrivalFacts, arrivalFeatures } from '../features/index.ts';
import { rankOf } from './decisions.ts';
import { type LoadedCode, SlotProgram } from './slotProgram.ts';
import { DecisionTree } from './tree.ts';

/** The rank of a request as it arrives at an instance. */
export type ArrivalRank = (facts: ArrivalFacts) => number;

class RankingEngine extends SchedulerEngine {
  rank: ArrivalRank = ({ request }) => request.priority;

  override add(request: SimRequest, nowUs: number): void {
    request.priority = this.rank({ request, engine: this, nowUs });
    super.add(request, nowUs);
  }
}

export function rankOfCode(code: LoadedCode): ArrivalRank {
  const program = new SlotProgram('instanceScheduler', code);
  const writer = program.writer(0, arrivalFeatures);
  return (facts) => {
    writer.write(0, facts);
    return rankOf(program.decide(facts.request.id, facts.nowUs)[0]);
  };
}

export function rankOfTree(root: TreeNode): ArrivalRank {
  const tree = new DecisionTree('instanceScheduler', root);
  return (facts) => rankOf(tree.walk({ request: facts }).value ?? 0);
}

/** @param makeRank called once for each instance: what one remembers, no other sees */
export function rankingEngine(makeRank: () => ArrivalRank): MakeEngine {
  return ({ engine }, timeline, woken) => {
    const ranking = new RankingEngine(engine, timeline, woken);
    ranking.rank = makeRank();
    return ranking;
  };
}
