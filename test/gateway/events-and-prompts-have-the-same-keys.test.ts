import { describe, expect, it } from 'vitest';
import { CacheBook } from '../../src/serve/gateway/blockNews.ts';
import { CachePicture } from '../../src/serve/gateway/events/cachePicture.ts';
import type { KVEvent, KVEventBatch } from '../../src/serve/gateway/events/wire.ts';
import { PromptCutter, readPrompt, TenantSalts } from '../../src/serve/gateway/prompts.ts';
import { keysOfText } from '../../src/serve/gateway/records.ts';
import { Random } from '../fuzz/random.ts';

const secret = new Uint8Array(32).fill(7);
const cutter = new PromptCutter(4, secret, null);

/** Keys of all full blocks, as hexadecimal digits. */
function keysOf(tokens: readonly number[], model = 'm', adapter = '', salt = ''): string[] {
  return hexOf(cutter.cut(tokens, cutter.root(model, adapter, salt)).words);
}

function hexOf(words: Uint32Array): string[] {
  return Array.from({ length: words.length / 4 }, (_, i) => [...words.subarray(4 * i, 4 * i + 4)].join('.'));
}

/** What the records of a book say is where. */
class Told {
  readonly tiers: Set<string>[] = [new Set(), new Set(), new Set()];
  take(inputs: ReturnType<CacheBook['take']>): void {
    for (const { tier, stored, keys } of inputs) {
      for (const key of hexOf(keysOfText(keys))) {
        if (stored) this.tiers[tier].add(key);
        else this.tiers[tier].delete(key);
      }
    }
  }
}

const media = ['GPU', 'CPU', 'STORAGE'];

it('media by names that every object has are media that are not known', () => {
  const book = new CacheBook(cutter, [500, 500, 500]);
  const picture = new CachePicture();
  const odd = ['constructor', '__proto__', 'toString'];
  for (const medium of odd) {
    const tokenIds = [1, 2, 3, 4];
    const events: readonly KVEvent[] = [
      {
        ...{ type: 'stored', hashes: ['a'], parent: null, tokenIds, blockTokens: 4, medium, group: null },
        ...{ layers: null, loraName: null, salt: null, extraKeys: null },
      } as KVEvent,
    ];
    expect(book.take(events[0], 'm', 0)).toEqual([]);
    picture.apply({ events } as KVEventBatch);
  }
  expect(book.counts.unusable).toBe(odd.length);
  expect(Object.entries(picture.blocks)).toEqual(odd.map((medium) => [medium, 1]));
  expect(Object.entries(picture.match([1, 2, 3, 4]).byMedium)).toEqual(odd.map((medium) => [medium, 1]));
});

it.each([1, 2, 3, 4])('random stores, losses and clears leave what a plain model has, seed %i', (seed) => {
  const random = new Random(seed);
  const book = new CacheBook(cutter, [500, 500, 500]);
  const told = new Told();
  const model = [new Set<string>(), new Set<string>(), new Set<string>()];
  const prompts = Array.from({ length: 12 }, (_, i) => {
    const shared = Array.from({ length: 12 }, (__, at) => (i % 3) * 100 + at);
    return [...shared, ...Array.from({ length: 12 }, () => random.below(1000))];
  });
  // the server's own hash of a block: of its prompt's tokens up to its end
  const hashOf = (tokens: readonly number[], block: number): string =>
    tokens.slice(0, 4 * (block + 1)).join();
  for (let step = 0; step < 600; step++) {
    const tokens = random.pick(prompts);
    const keys = keysOf(tokens);
    const tier = random.below(3);
    const what = random.below(20);
    let event: KVEvent;
    if (what === 0 && random.below(5) === 0) {
      const one = random.below(2) === 0;
      event = { type: 'cleared', reason: 'published', medium: one ? media[tier] : null };
      for (const set of one ? [model[tier]] : model) set.clear();
    } else if (what < 12) {
      const count = 1 + random.below(6);
      event = {
        type: 'stored',
        hashes: Array.from({ length: count }, (_, i) => hashOf(tokens, i)),
        parent: null,
        tokenIds: tokens.slice(0, 4 * count),
        blockTokens: 4,
        medium: media[tier],
        group: null,
        layers: null,
        loraName: null,
        salt: null,
        extraKeys: null,
      };
      for (const key of keys.slice(0, count)) model[tier].add(key);
    } else {
      const block = random.below(6);
      event = { type: 'removed', hashes: [hashOf(tokens, block)], medium: media[tier], group: null };
      model[tier].delete(keys[block]);
    }
    told.take(book.take(event, 'm', 0));
    expect(told.tiers).toEqual(model);
  }
  const again = new Told();
  again.take(book.all(1));
  expect(again.tiers).toEqual(model);
  expect(book.counts.unusable).toBe(0);
});

describe('what cannot be compared with a prompt is counted', () => {
  const stored = {
    type: 'stored',
    hashes: ['a'],
    parent: null,
    tokenIds: [1, 2, 3, 4],
    blockTokens: 4,
    medium: 'GPU',
    group: null,
    layers: null,
    loraName: null,
    salt: null,
    extraKeys: null,
  } as const;
  it('of several layer groups the first one that attends to all tokens counts', () => {
    const book = new CacheBook(cutter, [10]);
    // before it is known the first one counts, and what it told is forgotten then
    const early = new Told();
    early.take(book.take({ ...stored, hashes: ['e'] }, 'm', 0));
    expect(early.tiers[0].size).toBe(1);
    const window = { ...stored, hashes: ['w'], group: 0, layers: 'sliding_window' };
    const full = { ...stored, hashes: ['f'], group: 1, layers: 'full_attention' };
    early.take(book.take({ ...full, tokenIds: [5, 6, 7, 8] }, 'm', 0));
    expect([...early.tiers[0]]).toEqual(keysOf([5, 6, 7, 8]));
    expect(book.take(window, 'm', 0)).toEqual([]);
    expect(book.counts.unusable).toBe(1);
    expect(book.all(0)).toHaveLength(1);
    expect(book.take({ type: 'removed', hashes: ['w'], medium: 'GPU', group: 0 }, 'm', 0)).toEqual([]);
    expect(book.take({ type: 'removed', hashes: ['f'], medium: 'GPU', group: 1 }, 'm', 0)).toHaveLength(1);
  });

  it.each([
    ['no tokens', { ...stored, tokenIds: [] }],
    ['another size of blocks', { ...stored, blockTokens: 8, tokenIds: [1, 2, 3, 4, 5, 6, 7, 8] }],
    ['a block before that is not known', { ...stored, parent: 'unknown' }],
    ['a medium that is not known', { ...stored, medium: 'TAPE' }],
    ['another layer group', { ...stored, group: 1 }],
    ['an image beside the tokens', { ...stored, extraKeys: [['image-hash', 0]] }],
    ['a tier that the backend does not have', { ...stored, medium: 'STORAGE' }],
  ])('%s', (_what, event) => {
    const book = new CacheBook(cutter, [10]);
    expect(book.take(event, 'm', 0)).toEqual([]);
    expect(book.counts).toMatchObject({ unusable: 1, forgotten: 0 });
  });

  it('a server that says it holds more than it can is forgotten in part, and the book stays bounded', () => {
    const book = new CacheBook(cutter, [10]);
    const told = new Told();
    for (let i = 0; i < 5000; i++) {
      told.take(book.take({ ...stored, hashes: [`h${i}`], tokenIds: [i, 0, 0, 0] }, 'm', 0));
    }
    expect(told.tiers[0].size).toBe(2 * 10 + 1024);
    expect(book.counts.forgotten).toBe(5000 - 1044);
  });
});

describe('keys', () => {
  const tokens = [1, 2, 3, 4, 5, 6, 7, 8];
  it('are the same for the same beginnings, and differ by model, adapter, salt and secret', () => {
    expect(keysOf([...tokens, 9, 9, 9, 9]).slice(0, 2)).toEqual(keysOf(tokens));
    expect(keysOf([1, 2, 3, 5, 5, 6, 7, 8])[1]).not.toBe(keysOf(tokens)[1]);
    const all = [
      keysOf(tokens),
      keysOf(tokens, 'other'),
      keysOf(tokens, 'm', 'adapter'),
      keysOf(tokens, 'm', '', 'salt'),
      hexOf(new PromptCutter(4, new Uint8Array(32), null).cut(tokens, cutter.root('m', '', '')).words),
    ];
    expect(new Set(all.flat()).size).toBe(10);
  });

  it('of a text are cut by its bytes, four of which count as a token', () => {
    const root = cutter.root('m', '', '');
    const { promptTokens, words } = cutter.cut('x'.repeat(70), root);
    expect([promptTokens, words.length / 4]).toEqual([18, 4]);
    const other = cutter.cut(`${'x'.repeat(40)}y${'x'.repeat(29)}`, root);
    expect(hexOf(other.words).slice(0, 2)).toEqual(hexOf(words).slice(0, 2));
    expect(hexOf(other.words)[2]).not.toBe(hexOf(words)[2]);
  });
});

describe('tenants', () => {
  const tokens = [1, 2, 3, 4];
  const event = {
    type: 'stored',
    hashes: ['a'],
    parent: null,
    tokenIds: tokens,
    blockTokens: 4,
    medium: 'GPU',
    group: null,
    layers: null,
    loraName: null,
    salt: null,
    extraKeys: null,
  } as const;
  /** Which prompts find the block of an event: tenants a and b, and a with a salt of its own. */
  function finders(salts: TenantSalts, salt: string | null): boolean[] {
    const own = new PromptCutter(4, secret, null, null, salts);
    const told = new Told();
    told.take(new CacheBook(own, [10]).take({ ...event, salt }, 'm', 0));
    return [
      ['a', ''],
      ['b', ''],
      ['a', 'x'],
    ].map(([tenant, asked]) => {
      const [key] = hexOf(own.cut(tokens, own.root('m', '', salts.of(tenant, asked))).words);
      return told.tiers[0].has(key);
    });
  }

  it.each([
    ['say nothing: they share', undefined, null, [true, true, false]],
    ['tell the tenant as the salt', undefined, 'a', [true, false, false]],
    ['tell a salt that a body gave', undefined, 'x', [false, false, true]],
    ['are said to keep them apart', true, 'a', [true, false, false]],
    ['are said to keep them apart, and tell of none', true, null, [false, false, false]],
    ['are said not to', false, 'a', [false, false, false]],
  ] as const)('of servers that %s', (_what, apart, salt, found) => {
    expect(finders(new TenantSalts(['a', 'b'], apart), salt)).toEqual(found);
  });

  it('are not taken for apart by a salt that a body gave, though it is the name of one', () => {
    const salts = new TenantSalts(['a', 'b']);
    expect(salts.of('b', 'a')).toBe('a');
    salts.told('a');
    expect([salts.areApart, salts.areUnknown]).toEqual([false, true]);
    salts.told('b');
    expect([salts.areApart, salts.areUnknown]).toEqual([true, false]);
  });
});

describe('a gateway without tenants', () => {
  it.each([
    ['under salts alone, and a prompt names none', ['a', 'b'], [''], 1],
    ['under salts alone, and each prompt names one', ['a', 'b'], ['a'], 0],
    ['under a salt and under none', ['a', null], ['', ''], 0],
    ['under none', [null], [''], 0],
  ] as const)('says once that no prompt can find what servers tell of %s', (_what, told, asked, said) => {
    let missed = 0;
    const salts = new TenantSalts([], undefined, () => missed++);
    expect([salts.of('', ''), salts.areMissed]).toEqual(['', false]); // before anything was told
    for (const salt of told) salts.told(salt);
    for (const salt of [...asked, ...asked]) expect(salts.of('', salt)).toBe(salt);
    expect([missed, salts.areMissed]).toEqual([said, said === 1]);
  });

  it('with tenants has nothing to say', () => {
    const salts = new TenantSalts(['a'], undefined, () => expect.unreachable());
    salts.told('b');
    expect([salts.of('a', ''), salts.areMissed]).toEqual(['', false]);
  });
});

describe('prompts of bodies', () => {
  const chat = (messages: unknown): ReturnType<typeof readPrompt> =>
    readPrompt('/v1/chat/completions', JSON.stringify({ model: 'm', messages }));
  it('a chat that goes on begins as the chat before it', () => {
    const first = chat([{ role: 'user', content: 'hello' }]).prompt as string;
    const second = chat([
      { role: 'user', content: 'hello' },
      { role: 'assistant', content: 'you' },
    ]).prompt as string;
    expect(second.startsWith(first)).toBe(true);
    expect(second).not.toBe(first);
  });

  it.each([
    ['text', 'hello', 'hello'],
    ['token ids', [1, 2], [1, 2]],
    ['several texts', ['a', 'b'], 'a'],
    ['several lists of ids', [[1], [2]], [1]],
    ['nothing', undefined, ''],
    ['what cannot be one', { a: 1 }, ''],
    ['ids that cannot be', [1, -1], ''],
  ])('of %s', (_what, prompt, expected) => {
    expect(readPrompt('/v1/completions', JSON.stringify({ prompt })).prompt).toEqual(expected);
  });

  it.each([
    [null],
    [[null]],
    [[{ role: 'user' }]],
    [[{ role: 'user', content: [{ type: 'text' }, 7] }]],
    ['x'],
  ])('messages %j are no error of the gateway', (messages) => {
    expect(typeof chat(messages).prompt).toBe('string');
  });
});
