/** A diagnosis as text for a terminal, and as a report: what broke the caches, at which place, at which price, and what to change. */

import { formatCount, formatCounted, formatSeconds, printable, renderTable } from '../../io/printing/text.ts';
import type { Report } from '../../observe/report/model.ts';
import { originOf } from '../../observe/report/origin.ts';
import { type Diagnosis, diagnosisText, type ExaminedTurn, type FoundCause } from './doctor.ts';

/** Findings that are written out; the table has all. */
const SHOWN_MOST = 12;

/** @param shown findings that are written out. Default 12 */
export function doctorText(diagnosis: Diagnosis, shown: number = SHOWN_MOST): string {
  const { findings, others, isCounted } = diagnosis;
  const lines = [diagnosisText(diagnosis)];
  for (const finding of findings.slice(0, shown)) lines.push('', ...findingLines(finding));
  if (findings.length > shown) {
    lines.push('', `${formatCounted(findings.length - shown, 'causes')} more, by tokens:`);
    lines.push(tableText(findings.slice(shown)));
  }
  lines.push('');
  if (!isCounted) lines.push('Tokens are estimated at four bytes each where no answer has a count.');
  if (others > 0) lines.push(`${formatCounted(others, 'entries')} without a prompt.`);
  return `${lines
    .join('\n')
    .replace(/\n{3,}/g, '\n\n')
    .trimEnd()}\n`;
}

function findingLines(finding: FoundCause): string[] {
  const { title, remedy, conversation, first, turns, path, detail } = finding;
  const { difference } = first;
  const where = [
    ...(path === '' ? [] : [`at ${path}`]),
    ...(difference === undefined || difference.partByte === 0
      ? []
      : [`byte ${formatCount(difference.partByte)}`]),
  ].join(', ');
  return [
    `${title}${detail === '' ? '' : ` (${printable(detail)})`}${where === '' ? '' : ` ${printable(where)}`}`,
    `  conversation ${conversation}, ${formatCounted(turns, 'turns')}, first ${printable(first.at)} against ${printable(first.against)}`,
    ...(difference === undefined ? [serverLine(first)] : excerptLines(difference.before, difference.after)),
    `  computed again: ${costText(finding)}`,
    `  ${remedy}`,
  ];
}

const serverLine = ({ cachedTokens, promptTokens }: ExaminedTurn): string =>
  `  found ${formatCount(cachedTokens)} of ${formatCount(promptTokens)} tokens`;

function excerptLines(before: string, after: string): string[] {
  return before === after ? [] : [`  - ${printable(before)}`, `  + ${printable(after)}`];
}

function costText({ lostTokens, lostSeconds, lostUsd }: FoundCause): string {
  return [
    formatCounted(lostTokens, 'tokens'),
    ...(lostSeconds === null ? [] : [formatSeconds(lostSeconds)]),
    ...(lostUsd === null ? [] : [`${lostUsd.toPrecision(3)} USD`]),
  ].join(', ');
}

function tableText(findings: readonly FoundCause[]): string {
  return renderTable(
    [
      { title: 'cause' },
      { title: 'place' },
      { title: 'turns', align: 'right' },
      { title: 'tokens', align: 'right' },
    ],
    findings.map(({ title, path, turns, lostTokens }) => [
      title,
      printable(path),
      String(turns),
      formatCount(lostTokens),
    ]),
  );
}

/** @param command as it was typed */
export function doctorReport(diagnosis: Diagnosis, command: string): Report {
  const { findings, turns, conversations, promptTokens, lostTokens, isCounted, others } = diagnosis;
  const byCause = new Map<string, number>();
  for (const finding of findings)
    byCause.set(finding.title, (byCause.get(finding.title) ?? 0) + finding.lostTokens);
  const seconds = findings.map(({ lostSeconds }) => lostSeconds).filter((each) => each !== null);
  return {
    title: 'What broke the prompt cache',
    question: 'Which byte of a prompt made the server compute again what it had?',
    answer: diagnosisText(diagnosis),
    verdict: findings.length === 0 ? 'yes' : 'no',
    figures: [
      { name: 'requests', value: turns.length, unit: 'count' },
      { name: 'conversations', value: conversations, unit: 'count' },
      { name: 'tokens computed again', value: lostTokens, unit: 'count' },
      {
        name: 'share of all prompt tokens',
        value: promptTokens === 0 ? null : lostTokens / promptTokens,
        unit: 'share',
      },
      ...(seconds.length === 0
        ? []
        : [{ name: 'GPU time', value: seconds.reduce((all, each) => all + each, 0), unit: 's' as const }]),
    ],
    sections: [
      ...(findings.length === 0
        ? []
        : [
            {
              kind: 'bars' as const,
              title: 'Tokens computed again, by cause',
              unit: 'count' as const,
              bars: [...byCause].map(([name, value]) => ({ name, value })),
            },
          ]),
      {
        kind: 'table',
        title: 'Causes',
        columns: [
          { title: 'cause' },
          { title: 'place' },
          { title: 'before' },
          { title: 'after' },
          { title: 'first turn' },
          { title: 'turns', unit: 'count' },
          { title: 'tokens', unit: 'count' },
          { title: 'time', unit: 's' },
          { title: 'USD', unit: 'plain' },
        ],
        rows: findings.map(
          ({ title, detail, path, first, turns: count, lostTokens: lost, lostSeconds, lostUsd }) => [
            detail === '' ? title : `${title} (${detail})`,
            path,
            first.difference?.before ?? '',
            first.difference?.after ?? '',
            first.at,
            count,
            lost,
            lostSeconds,
            lostUsd,
          ],
        ),
      },
    ],
    next: [...new Set(findings.map(({ remedy }) => remedy))],
    limits: [
      'Conversations are matched by the lines that their prompts share.',
      ...(isCounted ? [] : ['Tokens are estimated at four bytes each where no answer has a count.']),
      ...(others === 0 ? [] : [`${formatCounted(others, 'entries')} without a prompt.`]),
    ],
    origin: originOf(command),
  };
}
