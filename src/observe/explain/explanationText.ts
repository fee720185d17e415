/** An explanation as lines for people: neighbours with one reason are one line. */

import {
  type BlockExplanation,
  type BlockLife,
  type CacheExplanation,
  seconds,
} from '../../embed/explanation.ts';
import { formatBytes, formatCount, formatCounted, printable } from '../../io/printing/text.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';

/** An explanation as lines of text. */
export function explanationText(explanation: CacheExplanation): string {
  checkInputs({ explanation }, { explanation: is.fields({ atUs: is.number() }) });
  const { request, sequence, tenant, blocks, cost, limits, blockTokens } = explanation;
  const name =
    request === null ? (sequence === null ? 'these tokens' : `sequence ${sequence}`) : `request ${request}`;
  const whose = tenant === null ? '' : ` of ${tenant}`;
  const served = blocks.filter(({ cause }) => cause === null).length;
  const lines = [
    `${name}${whose} at ${seconds(explanation.atUs)}: ${served} of ${formatCounted(blocks.length, 'blocks')} found`,
    '',
  ];
  for (const { from, to, like } of runsOf(blocks)) {
    const numbers = from === to ? `block ${from}` : `blocks ${from} to ${to}`;
    lines.push(`  ${numbers}: ${like.why}`);
    if (like.remedy !== null) lines.push(`      ${like.remedy}`);
  }
  const tokens = blockTokens === null ? '' : ` (${formatCount(cost.computedBlocks * blockTokens)} tokens)`;
  const loaded = cost.loadedBytes === 0 ? '' : `, ${formatBytes(cost.loadedBytes)} loaded`;
  const sealed = cost.sealedAfterUs === null ? '' : `, all of it sealed after ${seconds(cost.sealedAfterUs)}`;
  lines.push('', `cost: ${formatCounted(cost.computedBlocks, 'blocks')} computed${tokens}${loaded}${sealed}`);
  for (const limit of limits) lines.push(`note: ${limit}`);
  return `${lines.map(printable).join('\n')}\n`;
}

interface LikeBlocks {
  readonly from: number;
  to: number;
  readonly like: BlockExplanation;
}

/** Neighbours with one reason; what differs from block to block within it is told of the first. */
function runsOf(blocks: readonly BlockExplanation[]): LikeBlocks[] {
  const runs: LikeBlocks[] = [];
  for (const block of blocks) {
    const last = runs.at(-1);
    if (last !== undefined && isAlike(last.like, block)) last.to = block.block;
    else runs.push({ from: block.block, to: block.block, like: block });
  }
  return runs;
}

function isAlike(a: BlockExplanation, b: BlockExplanation): boolean {
  if (a.cause !== b.cause || a.tier !== b.tier) return false;
  if (a.lost === null || b.lost === null) return a.why === b.why;
  return a.lost.tier === b.lost.tier && a.lost.sequence === b.lost.sequence && a.lost.by === b.lost.by;
}

/** Events that a life tells at its beginning, and as many at its end: a block of a system prompt has one for each request. */
const EVENTS_AT_AN_END = 40;

/**
 * A life as lines of text. Of a long one the first and the last events stand, and how many lie between.
 * @throws TKV_INPUT where it is not the life of a block
 */
export function lifeText(life: BlockLife): string {
  checkInputs({ life }, { life: is.fields({ key: is.text(), events: is.list(is.object()) }) });
  const { key, tier, events } = life;
  const end = tier === null ? 'no tier has it at the end' : `it lies in ${tier} at the end`;
  const lines = [`block ${key}: ${formatCounted(events.length, 'events')}, ${end}`, ''];
  const between = Math.max(0, events.length - 2 * EVENTS_AT_AN_END);
  for (const [i, { atUs, what, tier: where, sequence, request, by }] of events.entries()) {
    if (between > 0 && i === EVENTS_AT_AN_END) {
      lines.push(`  ... ${formatCounted(between, 'more events')}: the JSON of this answer has them`);
    }
    if (i >= EVENTS_AT_AN_END && i < EVENTS_AT_AN_END + between) continue;
    const who =
      request === null ? (sequence === null ? '' : ` for sequence ${sequence}`) : ` for request ${request}`;
    lines.push(
      `  ${seconds(atUs).padStart(12)}  ${what}${where === null ? '' : ` (${where})`}, by ${by}${who}`,
    );
  }
  return `${lines.map(printable).join('\n')}\n`;
}
