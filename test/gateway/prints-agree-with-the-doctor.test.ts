/** Prints of prompts say of two turns what the doctor says of their texts: whether one leaves the other, where, and at what cost. */

import { describe, expect, it } from 'vitest';
import { compare } from '../../src/serve/doctor/firstDifference.ts';
import { type PromptInParts, promptOf } from '../../src/serve/doctor/promptParts.ts';
import { PromptMemory } from '../../src/serve/gateway/diagnosis.ts';
import { comparePrints, printOf } from '../../src/serve/gateway/promptPrints.ts';
import { conversations } from '../doctor/conversations.ts';

const promptOfBody = (body: object): PromptInParts =>
  promptOf(body as Record<string, unknown>) as PromptInParts;

/** Causes that stand in the letters of a text, which a print has not. */
const inText = /header|date|tokenMarker|identifier|whitespace|edited/;

describe.each(conversations.map(({ name, turns }) => [name, turns] as const))('%s', (_name, turns) => {
  const prompts = turns.map(({ body }) => promptOfBody(body));
  it.each(prompts.slice(1).map((later, i) => [i, prompts[i], later] as const))(
    'turn %i',
    (_turn, earlier, later) => {
      const { difference, commonBytes } = compare(earlier, later);
      const printed = comparePrints(printOf(earlier), printOf(later), (part) => later.parts[part].path);
      const found = printed.isLoss ? printed.difference : undefined;
      expect(found?.path).toBe(difference?.path);
      if (difference === undefined || found === undefined) return;
      const cause =
        inText.test(difference.cause) && difference.path !== 'tools'
          ? expect.stringMatching(/edited|tools|whitespace/)
          : difference.cause;
      expect(found.cause).toEqual(cause);
      expect(found.kind !== 'message').toBe(difference.isBeforeMessages);
      expect(Math.abs(found.keptBytes - difference.lostBytes)).toBeLessThan(0.1 * difference.lostBytes + 64);
      // to the beginning of the line
      expect(commonBytes - printed.commonBytes).toBeGreaterThanOrEqual(0);
      expect(commonBytes - printed.commonBytes).toBeLessThan(300);
    },
  );
});

describe('a memory of prompts', () => {
  const print = (text: string, lines = 1) =>
    printOf(promptOfBody({ messages: [{ role: 'user', content: `${text}\n`.repeat(lines) }] }));
  const backend = {} as never;

  it('keeps tenants apart, and the tenant that has most gives room', () => {
    const memory = new PromptMemory(4000);
    memory.remember('quiet', { id: 'a', print: print('quiet'), backend });
    for (let i = 0; i < 50; i++)
      memory.remember('loud', { id: `l${i}`, print: print(`loud ${i}`, 20), backend });
    expect(memory.bytes).toBeLessThanOrEqual(4000);
    expect(memory.named('quiet', 'a')).toBeDefined();
    expect(memory.named('loud', 'a')).toBeUndefined();
    expect(memory.held('loud', print('quiet'))).toEqual([]);
    expect([memory.named('loud', 'l0'), memory.named('loud', 'l49') === undefined]).toEqual([
      undefined,
      false,
    ]);
  });

  it('one that is larger than all room is not kept, and an id that comes again is the newer one', () => {
    const memory = new PromptMemory(3000);
    memory.remember('t', { id: 'a', print: print('x'), backend });
    memory.remember('t', { id: 'a', print: print('y'), backend });
    expect([memory.held('t', print('x')).length, memory.held('t', print('y')).length]).toEqual([0, 1]);
    memory.remember('t', { id: 'b', print: print('z', 10_000), backend });
    expect(memory.bytes).toBeLessThanOrEqual(3000);
    const big = printOf(
      promptOfBody({ messages: Array.from({ length: 500 }, (_, i) => ({ role: 'user', content: `m${i}` })) }),
    );
    memory.remember('t', { id: 'c', print: big, backend });
    expect([memory.bytes, memory.named('t', 'c')]).toEqual([0, undefined]);
  });
});
