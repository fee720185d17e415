/** What `tierkv simulate` prints of a whole case, without its metrics, which are compared elsewhere. */

import type { BuildExtras } from '../../../src/sim/build/built.ts';
import { goodputTargets } from '../../../src/sim/build/classTargets.ts';
import { summaryText } from '../../../src/sim/build/output.ts';
import { Decisions } from '../../../src/sim/report/decisions.ts';
import { clusterMetrics, metricsOutput } from '../../../src/sim/report/metricsOutput.ts';
import { simulated } from '../upstream/wholeCases.ts';

/** Sections by title, each with its lines. */
export type Sections = ReadonlyMap<string, readonly string[]>;

export function sectionsOf(text: string): Sections {
  const sections = new Map<string, string[]>();
  let lines: string[] = [];
  for (const line of text.split('\n')) {
    const title = /^=== (.*) ===$/.exec(line)?.[1];
    if (title === undefined) {
      if (line !== '') lines.push(line);
      continue;
    }
    lines = sections.get(title) ?? [];
    sections.set(title, lines);
  }
  return sections;
}

export function printedCase(args: readonly string[], extras: BuildExtras = {}): Sections {
  const watch = new Decisions(false);
  const { simulation, deployment, outputs, opened, scheduler } = simulated(args, {
    observer: watch,
    ...extras,
  });
  const { table, instances } = simulation;
  const targets = goodputTargets(deployment, opened.spec);
  const text = summaryText({
    simulation,
    cluster: clusterMetrics(table, instances, targets),
    perInstance:
      instances.length === 1
        ? []
        : instances.map(({ id }, i) => metricsOutput(table, instances, id, i, false)),
    byPriority: scheduler === 'priority-fcfs',
    hasTargets: Object.keys(targets).length > 0,
    decisions: outputs.summarizeTrace === true ? watch.summary : undefined,
    scaling: [],
    asUpstream: deployment.values.asUpstream === true,
  });
  return sectionsOf(text);
}
