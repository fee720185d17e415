/**
 * A run in 500 to 1,500 tokens, for a person or a prompt. The same run gives the same text. Nothing in it
 * looks like a secret to the filters of search frameworks: ids have at most 16 digits, and no word is
 * followed by a colon and a number that a filter takes for a key.
 */

import type { RunFacts } from './facts.ts';
import { type Issue, issuesOf } from './issues.ts';
import { patternLine, patternsOf } from './patterns.ts';
import {
  counterfactualLines,
  decisionLines,
  focusLines,
  issueLines,
  outcomeLines,
  worstLines,
} from './sections.ts';

export const summaryStrategies = [
  'issue_focused',
  'decision_audit',
  'counterfactual',
  'pattern_mining',
] as const;
export type SummaryStrategy = (typeof summaryStrategies)[number];

export interface SummaryConfig {
  readonly strategy: SummaryStrategy;
  /** From 100 to 20,000; a token counts as four characters. */
  readonly maxTokens: number;
  /** Slots whose issues are told; empty for all. */
  readonly focusAreas: readonly string[];
  readonly includeExamples: boolean;
  readonly includeCounters: boolean;
}

export const defaultSummary: SummaryConfig = {
  strategy: 'issue_focused',
  maxTokens: 1500,
  focusAreas: [],
  includeExamples: true,
  includeCounters: true,
};

const CHARACTERS_PER_TOKEN = 4;

interface Section {
  readonly title: string;
  readonly lines: readonly string[];
}

export function summarise(facts: RunFacts, config: SummaryConfig = defaultSummary): string {
  const issues = issuesOf(facts).filter(
    ({ slot }) => config.focusAreas.length === 0 || config.focusAreas.includes(slot),
  );
  const shown = config.includeExamples ? issues : issues.map(withoutExamples);
  const sections = sectionsOf(facts, shown, config.strategy);
  return fitted(
    config.includeCounters ? sections : sections.filter(({ title }) => title !== 'Outcome'),
    config.maxTokens * CHARACTERS_PER_TOKEN,
  );
}

function withoutExamples(issue: Issue): Issue {
  return { ...issue, lines: issue.lines.filter((line) => !line.startsWith('examples')) };
}

function sectionsOf(facts: RunFacts, issues: readonly Issue[], strategy: SummaryStrategy): Section[] {
  const { requests, regrets } = facts;
  const outcome = { title: 'Outcome', lines: outcomeLines(facts) };
  const focus = { title: 'Suggested focus', lines: focusLines(issues) };
  const key = (most: number): Section => ({
    title: 'Key issues',
    lines: issues.length === 0 ? ['none'] : issueLines(issues.slice(0, most)),
  });
  const counterfactuals = { title: 'Counterfactuals', lines: counterfactualLines(regrets) };
  const patterns = (most: number): Section => ({
    title: 'Patterns of what went badly',
    lines: patternsOf(requests, most).map((pattern) => `- ${patternLine(pattern)}`),
  });
  const worst = (most: number): Section => ({
    title: 'Worst decisions',
    lines: worstLines(requests, regrets, most),
  });
  switch (strategy) {
    case 'issue_focused':
      return [outcome, key(4), counterfactuals, worst(3), focus, patterns(4)];
    case 'decision_audit': {
      const known = new Map(regrets.map((regret) => [regret.decision, regret]));
      const step = Math.max(1, Math.floor(requests.length / 12));
      const sampled = requests.filter((_, i) => i % step === Math.floor(step / 2)).slice(0, 12);
      const lines = sampled.flatMap((request) =>
        decisionLines(request, known.get(request.routing?.decision ?? -1)),
      );
      return [outcome, focus, { title: 'Decisions, spread over the run', lines }];
    }
    case 'counterfactual':
      return [outcome, counterfactuals, focus, worst(6)];
    case 'pattern_mining':
      return [outcome, patterns(16), focus, key(2)];
  }
}

/** As many sections and lines as there is room for: whole lines, from the first section on. */
function fitted(sections: readonly Section[], characters: number): string {
  let left = characters;
  const parts: string[] = [];
  for (const { title, lines } of sections) {
    const head = `## ${title}`;
    if (lines.length === 0 || left < head.length + lines[0].length + 4) continue;
    const kept: string[] = [];
    left -= head.length + 3;
    for (const line of lines) {
      if (left < line.length + 1) break;
      left -= line.length + 1;
      kept.push(line);
    }
    parts.push([head, ...kept].join('\n'));
  }
  return `${parts.join('\n\n')}\n`;
}
