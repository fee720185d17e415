/**
 * Candidates as frameworks send them: a whole bundle, or a text for each slot on top of a base bundle. A text
 * that begins with a brace is the JSON of a policy, any other one a Starlark program.
 */

import { parseJson, withoutMark } from '../../runtime/boundedJson.ts';
import { configError } from '../../runtime/errors.ts';
import { unknownName } from '../../sim/control/index.ts';
import { PolicyError } from '../../sim/sandbox/index.ts';
import { type PolicyBundle, policySlots, readBundle } from '../bundle/index.ts';

export type Texts = Readonly<Record<string, string>>;

/** @throws TKV_CONFIG with the field at fault */
export function bundleOfTexts(texts: Texts, base: PolicyBundle): PolicyBundle {
  const slots: Record<string, unknown> = {};
  for (const [slot, text] of Object.entries(texts)) {
    if (!policySlots.some((name) => name === slot)) throw unknownName('candidate', slot, policySlots);
    if (typeof text !== 'string')
      throw configError(`candidate.${slot}`, 'is no text', 'Give its program or JSON.');
    const plain = withoutMark(text);
    slots[slot] = plain.trimStart().startsWith('{') ? jsonOf(slot, plain) : programOf(plain);
  }
  const { name: _, ...unnamed } = base;
  return readBundle({ ...unnamed, ...slots });
}

function programOf(source: string): unknown {
  return { type: 'code', language: 'starlark', source };
}

function jsonOf(slot: string, text: string): unknown {
  return parseJson(text, (problem) => {
    return new PolicyError('compile', `the text begins as JSON and ${problem}. Correct it`, { path: slot });
  });
}

const START = /^\s*(#|\/\/)\s*EVOLVE-BLOCK-START/;
const END = /^\s*(#|\/\/)\s*EVOLVE-BLOCK-END/;

interface FrozenLine {
  readonly text: string;
  /** From 1 in the whole text. */
  readonly line: number;
}

/** Lines that a search may not edit, with a mark in the place of each block. All, where there is no block. */
function frozenLines(text: string): FrozenLine[] {
  const frozen: FrozenLine[] = [];
  let isOpen = false;
  for (const [i, line] of text.split('\n').entries()) {
    if (START.test(line)) isOpen = true;
    if (!isOpen) frozen.push({ text: line.trimEnd(), line: i + 1 });
    if (isOpen && END.test(line)) {
      isOpen = false;
      frozen.push({ text: '# EVOLVE-BLOCK', line: i + 1 });
    }
  }
  while (frozen.at(-1)?.text === '') frozen.pop();
  return frozen;
}

/**
 * Compares what stands outside the marked blocks. An original without blocks may be edited everywhere.
 * @throws PolicyError frozen_region_edited with the line
 */
export function checkFrozen(slot: string, text: string, original: string): void {
  if (!original.split('\n').some((line) => START.test(line))) return;
  const before = frozenLines(original);
  const after = frozenLines(text);
  const differs = before.findIndex(({ text: wanted }, i) => wanted !== after[i]?.text);
  if (differs < 0 && after.length === before.length) return;
  const at = differs < 0 ? before.length : differs;
  const wanted = at < before.length ? JSON.stringify(before[at].text) : 'nothing more';
  // where lines are lacking at the end, behind the last one
  const line = after[at]?.line ?? text.trimEnd().split('\n').length;
  throw new PolicyError(
    'frozen_region_edited',
    `text outside the lines EVOLVE-BLOCK-START and EVOLVE-BLOCK-END has changed: ${wanted} is expected. ` +
      'Edit only what stands between them',
    { path: slot, line },
  );
}
