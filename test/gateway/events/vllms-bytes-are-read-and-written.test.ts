/**
 * The bytes of messages. What is read was written by msgspec 0.22 from vLLM's field names, in its two encodings; what
 * is written is compared byte for byte with the documented form.
 */

import { describe, expect, it } from 'vitest';
import { CachePicture } from '../../../src/serve/gateway/events/cachePicture.ts';
import {
  clearedOnWire,
  loadMessagePack,
  numberFrame,
  numberIn,
  packBatch,
  readBatch,
  removedOnWire,
  storedOnWire,
  WireFault,
  type WireStored,
} from '../../../src/serve/gateway/events/wire.ts';

const pack = await loadMessagePack();
const hex = (text: string): Buffer => Buffer.from(text.replace(/\s/g, ''), 'hex');
const read = (bytes: Uint8Array) => readBatch(pack, 'kv', 7n, bytes);

const asMaps = hex(`
  83a27473cb3ff8000000000000a66576656e74739481a474797065b0416c6c426c6f636b73436c656172656489a474797065ab426c6f636b53
  746f726564ac626c6f636b5f6861736865739201cfffffffffffffffffb1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f69
  6473940506ce0001117008aa626c6f636b5f73697a6502a76c6f72615f6964c0a66d656469756da3475055a96c6f72615f6e616d65c0aa65
  787472615f6b6579739291a5616c696365c08aa474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657391c42001010101
  01010101010101010101010101010101010101010101010101010101b1706172656e745f626c6f636b5f68617368cfffffffffffffffffa9
  746f6b656e5f69647392090aaa626c6f636b5f73697a6502a76c6f72615f6964c0a66d656469756da3435055a96c6f72615f6e616d65a66c
  6f72612d61a967726f75705f69647801b26b765f63616368655f737065635f6b696e64ae66756c6c5f617474656e74696f6e83a474797065
  ac426c6f636b52656d6f766564ac626c6f636b5f6861736865739101a66d656469756da3475055b2646174615f706172616c6c656c5f7261
  6e6b00`);
const asArrays = hex(`
  93cb3ff80000000000009491b0416c6c426c6f636b73436c65617265649cab426c6f636b53746f7265649201cfffffffffffffffffc0940506
  ce000111700802c0a3475055c09291a5616c696365c0c0c0c09cab426c6f636b53746f72656491c420010101010101010101010101010101
  0101010101010101010101010101010101cfffffffffffffffff92090a02c0a3435055a66c6f72612d61c001ae66756c6c5f617474656e74
  696f6ec094ac426c6f636b52656d6f7665649101a3475055c000`);

describe('a message of vLLM', () => {
  const events = [
    { type: 'cleared', reason: 'published', medium: null },
    {
      type: 'stored',
      hashes: ['0000000000000001', 'ffffffffffffffff'],
      parent: null,
      tokenIds: [5, 6, 70_000, 8],
      blockTokens: 2,
      medium: 'GPU',
      group: null,
      layers: null,
      loraName: null,
      salt: 'alice',
      extraKeys: [['alice'], null],
    },
    {
      type: 'stored',
      hashes: ['01'.repeat(32)],
      parent: 'ffffffffffffffff',
      tokenIds: [9, 10],
      blockTokens: 2,
      medium: 'CPU',
      group: 1,
      layers: 'full_attention',
      loraName: 'lora-a',
      salt: null,
      extraKeys: null,
    },
    { type: 'removed', hashes: ['0000000000000001'], medium: 'GPU', group: null },
  ];

  it.each([
    ['maps', asMaps],
    ['arrays', asArrays],
  ])('is read as %s', (_, bytes) => {
    expect(read(bytes)).toEqual({ topic: 'kv', number: 7n, publishedAtS: 1.5, rank: 0, events });
  });

  it('may end before its last fields, and have events of kinds that are not known', () => {
    const bytes = pack.pack([
      2.5,
      [
        ['BlockStored', [1n], null, [1, 2], 2, null],
        ['BlocksMoved', 'CPU'],
      ],
    ]);
    const { events: told, rank } = read(bytes);
    expect(told).toMatchObject([{ type: 'stored', medium: null, salt: null }]);
    expect(told).toHaveLength(1);
    expect(rank).toBeNull();
  });

  it('may clear one medium, and tell of stores that servers share, which say nothing of its own', () => {
    const block = {
      type: 'BlockStored',
      block_hashes: [1n],
      token_ids: [1],
      block_size: 1,
      locality: 'REMOTE',
    };
    const bytes = pack.pack([
      2.5,
      [
        ['TierBlocksCleared', 'CPU'],
        { type: 'TierBlocksCleared' },
        block,
        { type: 'BlockRemoved', block_hashes: [1n], locality: 'REMOTE' },
        { ...block, locality: 'LOCAL' },
      ],
    ]);
    expect(read(bytes).events).toMatchObject([
      { type: 'cleared', medium: 'CPU' },
      { type: 'cleared', medium: 'GPU' },
      { type: 'stored' },
    ]);
    const picture = new CachePicture();
    picture.apply({ ...read(bytes), events: read(bytes).events.slice(2) });
    expect(picture.match([1]).byMedium).toEqual({ GPU: 1 });
    picture.apply({ ...read(bytes), events: read(bytes).events.slice(0, 1) });
    expect(picture.match([1]).blocks).toBe(1);
    picture.apply({ ...read(bytes), events: read(bytes).events.slice(1, 2) });
    expect(picture.match([1]).blocks).toBe(0);
  });

  it('tells a salt from the name of an adapter and the hash of an image', () => {
    const stored = (keys: unknown[], lora: string | null) =>
      read(pack.pack([1.5, [{ ...map, lora_name: lora, extra_keys: [keys] }], 0])).events[0];
    const map = {
      type: 'BlockStored',
      block_hashes: [1n],
      parent_block_hash: null,
      token_ids: [1],
      block_size: 1,
    };
    expect(stored(['lora-a', 'f'.repeat(64), 'bob'], 'lora-a')).toMatchObject({ salt: 'bob' });
    expect(stored(['dynamo-cache-salt:bob'], null)).toMatchObject({ salt: 'bob' });
    expect(stored(['lora-a'], 'lora-a')).toMatchObject({ salt: null });
  });
});

describe('what is written', () => {
  const stored: WireStored = {
    hashes: [1n, 2n ** 64n - 1n],
    parent: null,
    tokenIds: [5, 6, 70_000, 8],
    blockTokens: 2,
    medium: 'GPU',
    group: null,
    loraName: null,
    salt: 'alice',
    saltPrefix: '',
    media: [[], []],
  };

  it('is these bytes as arrays', () => {
    const events = [
      clearedOnWire('arrays'),
      storedOnWire('arrays', stored),
      removedOnWire('arrays', [1n], 'GPU', 1),
    ];
    const expected = hex(`93 cb3ff8000000000000 93
      91 b0416c6c426c6f636b73436c6561726564
      99 ab426c6f636b53746f726564 92 d30000000000000001 cfffffffffffffffff c0 94 05 06 ce00011170 08 02 c0 a3475055 c0
         92 91 a5616c696365 c0
      94 ac426c6f636b52656d6f766564 91 d30000000000000001 a3475055 01
      00`);
    expect(Buffer.from(packBatch(pack, 1.5, events, 0)).toString('hex')).toBe(expected.toString('hex'));
  });

  it('is these bytes as maps', () => {
    const events = [
      storedOnWire('maps', {
        ...stored,
        salt: null,
        hashes: [7n],
        media: [[]],
        tokenIds: [1, 2],
        parent: 9n,
        group: 2,
      }),
      removedOnWire('maps', [1n], 'CPU', null),
      clearedOnWire('maps'),
    ];
    const expected = hex(`93 cb3ff8000000000000 93
      89 a474797065 ab426c6f636b53746f726564 ac626c6f636b5f686173686573 91 d30000000000000007
         b1706172656e745f626c6f636b5f68617368 d30000000000000009 a9746f6b656e5f696473 92 01 02
         aa626c6f636b5f73697a65 02 a76c6f72615f6964 c0 a66d656469756d a3475055 a96c6f72615f6e616d65 c0
         a967726f75705f696478 02
      83 a474797065 ac426c6f636b52656d6f766564 ac626c6f636b5f686173686573 91 d30000000000000001 a66d656469756d a3435055
      81 a474797065 b0416c6c426c6f636b73436c6561726564
      c0`);
    expect(Buffer.from(packBatch(pack, 1.5, events, null)).toString('hex')).toBe(expected.toString('hex'));
  });

  it.each(['maps', 'arrays'] as const)('comes back from %s', (encoding) => {
    const events = [
      storedOnWire(encoding, { ...stored, saltPrefix: 'dynamo-cache-salt:' }),
      removedOnWire(encoding, [2n ** 63n], 'STORAGE', 3),
    ];
    expect(read(packBatch(pack, 1.5, events, 3))).toMatchObject({
      rank: 3,
      events: [
        { hashes: ['0000000000000001', 'ffffffffffffffff'], salt: 'alice', tokenIds: [5, 6, 70_000, 8] },
        { type: 'removed', hashes: ['8000000000000000'], medium: 'STORAGE', group: 3 },
      ],
    });
  });

  it('has the salt in the extra keys of the first block of a chain alone, and where Dynamo looks in all', () => {
    expect(storedOnWire('maps', stored)).toMatchObject({
      extra_keys: [['alice'], null],
      cache_salt: 'alice',
    });
    const next = storedOnWire('maps', { ...stored, parent: 5n }) as Record<string, unknown>;
    expect(next.extra_keys).toBeUndefined();
    expect(next.cache_salt).toBe('alice');
  });

  it('numbers messages in eight bytes, the first one the highest', () => {
    expect(Buffer.from(numberFrame(258n)).toString('hex')).toBe('0000000000000102');
    expect(Buffer.from(numberFrame(-1n)).toString('hex')).toBe('f'.repeat(16));
    expect(numberIn(numberFrame(2n ** 63n))).toBe(2n ** 63n);
    expect(() => numberIn(new Uint8Array(7))).toThrow(WireFault);
  });
});

describe('garbage', () => {
  const map = {
    type: 'BlockStored',
    block_hashes: [1n],
    parent_block_hash: null,
    token_ids: [1],
    block_size: 1,
  };
  const sparse = { ...map, token_ids: [1, 2, 3], kv_cache_spec_kind: 'sliding_window' };

  it('that tells of the last blocks of a window alone is read, with the tokens of all', () => {
    const { events } = read(pack.pack([1.5, [sparse, map], 0]));
    expect(events).toHaveLength(2);
    expect(events[0]).toMatchObject({ hashes: ['0000000000000001'], tokenIds: [1, 2, 3], blockTokens: 1 });
  });

  it.each<[string, unknown]>([
    [
      'fewer blocks than tokens, of layers that need all',
      pack.pack([1.5, [{ ...sparse, kv_cache_spec_kind: 'full_attention' }], 0]),
    ],
    [
      'fewer blocks than tokens, of layers of no kind',
      pack.pack([1.5, [{ ...sparse, kv_cache_spec_kind: null }], 0]),
    ],
    ['part of a block', pack.pack([1.5, [{ ...sparse, block_size: 2 }], 0])],
    ['no bytes', new Uint8Array(0)],
    ['bytes that are no MessagePack', hex('c1c1c1')],
    ['a list that says it has four thousand million members', hex('ddffffffff')],
    ['a number', pack.pack(5)],
    ['no events', pack.pack([1.5])],
    ['no time', pack.pack([null, []])],
    ['an event that is text', pack.pack([1.5, ['x'], 0])],
    ['an event without a type', pack.pack([1.5, [{}], 0])],
    ['hashes that are no list', pack.pack([1.5, [{ ...map, block_hashes: 5 }], 0])],
    ['a hash that is a fraction', pack.pack([1.5, [{ ...map, block_hashes: [1.5] }], 0])],
    ['token ids that are too few', pack.pack([1.5, [{ ...map, block_size: 2 }], 0])],
    ['a token id that is text', pack.pack([1.5, [{ ...map, token_ids: ['x'] }], 0])],
    ['blocks of no tokens', pack.pack([1.5, [{ ...map, block_size: 0, token_ids: [] }], 0])],
    ['a medium that is a number', pack.pack([1.5, [{ ...map, medium: 5 }], 0])],
    ['a rank that is text', pack.pack([1.5, [], 'x'])],
  ])('is a fault, not another exception: %s', (_, bytes) => {
    expect(() => read(bytes as Uint8Array)).toThrow(WireFault);
  });

  it('of any bytes is a fault or a message', () => {
    let state = 1;
    const byte = (): number => {
      state = (Math.imul(state, 1103515245) + 12345) >>> 0;
      return state >>> 24;
    };
    for (let round = 0; round < 20_000; round++) {
      const bytes = Uint8Array.from(round % 2 === 0 ? asMaps : asArrays);
      for (let flips = 1 + (round % 4); flips > 0; flips--)
        bytes[(byte() * 256 + byte()) % bytes.length] = byte();
      try {
        read(bytes);
      } catch (error) {
        expect(error, `round ${round}`).toBeInstanceOf(WireFault);
      }
    }
  });
});
