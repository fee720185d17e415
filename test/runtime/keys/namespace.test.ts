import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Granularity, unitSpec } from '../../../src/runtime/geometry/box.ts';
import { kvLayout } from '../../../src/runtime/geometry/layout.ts';
import {
  BlockKeys,
  CanonicalWriter,
  encodeNamespace,
  KeyChain,
  type KeyNamespace,
  ValueType,
} from '../../../src/runtime/keys/keyChain.ts';

const layout = kvLayout({ layers: 4, kvHeads: 4, headDim: 8, dtype: 'bf16', blockTokens: 4 });
const secretKey = Uint8Array.from({ length: 32 }, (_, i) => i);
const namespace: KeyNamespace = { secretKey, tenant: 'acme', epoch: 0, model: 'llama@1', layout };

type Field = readonly [tag: number, value: string | number | Uint8Array];

function encode(fields: readonly Field[]): Uint8Array {
  const writer = new CanonicalWriter();
  for (const [tag, value] of fields) {
    if (typeof value === 'string') writer.text(tag, value);
    else if (typeof value === 'number') writer.integer(tag, value);
    else writer.bytes(tag, value);
  }
  return writer.finish();
}

/** Reads an encoding back. A function that undoes the encoding is the proof that no two inputs share one. */
function decode(bytes: Uint8Array): Field[] {
  const fields: Field[] = [];
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  for (let at = 0; at < bytes.length; ) {
    const tag = view.getUint8(at);
    const type = view.getUint8(at + 1);
    const length = view.getUint32(at + 2, true);
    const start = at + 6;
    at = start + length;
    expect(at).toBeLessThanOrEqual(bytes.length);
    if (type === ValueType.BYTES) {
      fields.push([tag, bytes.slice(start, at)]);
    } else if (type === ValueType.TEXT) {
      let text = '';
      for (let unit = start; unit < at; unit += 2) text += String.fromCharCode(view.getUint16(unit, true));
      fields.push([tag, text]);
    } else {
      expect(type).toBe(ValueType.INTEGER);
      expect(length).toBe(8);
      fields.push([tag, view.getUint32(start + 4, true) * 2 ** 32 + view.getUint32(start, true)]);
    }
  }
  return fields;
}

const anyText = fc.string({ unit: fc.nat(0xffff).map((unit) => String.fromCharCode(unit)), maxLength: 300 });

describe('the canonical encoding (hazard 36: untyped extra keys)', () => {
  test('can be undone, for any list of texts, integers and bytes, unpaired surrogates included', () => {
    const field = fc.tuple(
      fc.integer({ min: 1, max: 255 }),
      fc.oneof(anyText, fc.maxSafeNat(), fc.uint8Array({ maxLength: 300 })),
    );
    fc.assert(
      fc.property(fc.array(field, { maxLength: 8 }), (fields) => {
        expect(decode(encode(fields))).toEqual(fields);
      }),
      { numRuns: 500 },
    );
  });

  test('of one value never equals the encoding of another type or of the value cut elsewhere', () => {
    const encodings = [
      [[1, 'ab']],
      [[1, new Uint8Array([0x61, 0, 0x62, 0])]],
      [
        [1, 'a'],
        [1, 'b'],
      ],
      [[1, '']],
      [],
      [
        [1, ''],
        [1, ''],
      ],
      [[1, 0]],
      [[1, '\0\0\0\0']],
      [[1, new Uint8Array(8)]],
      [[2, 'ab']],
      [[1, '\ud800']],
      [[1, '\ufffd']],
    ] satisfies Field[][];
    const texts = encodings.map((fields) => encode(fields).join());
    expect(new Set(texts).size).toBe(encodings.length);
  });
});

describe('a namespace', () => {
  const head = unitSpec(layout, { granularity: Granularity.HEAD, headsPerUnit: 2 });
  const variants: Record<string, KeyNamespace> = {
    'the first namespace': namespace,
    'another tenant': { ...namespace, tenant: 'acm' },
    'a tenant given as the same bytes': {
      ...namespace,
      tenant: new Uint8Array(Buffer.from('acme', 'utf16le')),
    },
    'the empty tenant': { ...namespace, tenant: '' },
    'another epoch': { ...namespace, epoch: 1 },
    'an epoch past 32 bits': { ...namespace, epoch: 2 ** 32 },
    'another model': { ...namespace, model: 'llama@2' },
    'tenant and model moved across their border': { ...namespace, tenant: 'acmel', model: 'lama@1' },
    'tenant and model exchanged': { ...namespace, tenant: 'llama@1', model: 'acme' },
    'an adapter': { ...namespace, extras: { adapter: 'sql' } },
    'an adapter under another name': { ...namespace, extras: { rope: 'sql' } },
    'an adapter named like the tenant': { ...namespace, extras: { adapter: 'acme' } },
    'two extras': { ...namespace, extras: { adapter: 'sql', rope: '2' } },
    'two extras with values exchanged': { ...namespace, extras: { adapter: '2', rope: 'sql' } },
    'one extra that spells two': { ...namespace, extras: { adapter: 'sqlrope2' } },
    'another dtype of equal size': { ...namespace, layout: { ...layout, dtype: 'f16' } },
    'another number of layers': { ...namespace, layout: kvLayout({ ...layout, layers: 5 }) },
    'whole layers': { ...namespace, unit: unitSpec(layout, { granularity: Granularity.LAYER }) },
    'another layer': {
      ...namespace,
      unit: unitSpec(layout, { granularity: Granularity.LAYER }),
      unitInRange: 1,
    },
    'the heads of one unit': { ...namespace, unit: head },
    'the heads of the next': { ...namespace, unit: head, unitInRange: 1 },
    'all heads and layers as one HEAD unit': {
      ...namespace,
      unit: unitSpec(layout, { granularity: Granularity.HEAD }),
    },
    'the same heads over a longer token range': {
      ...namespace,
      unit: unitSpec(layout, { granularity: Granularity.HEAD, headsPerUnit: 2, tokensPerUnit: 8 }),
    },
    'single tokens': { ...namespace, unit: unitSpec(layout, { granularity: Granularity.TOKEN }) },
  };

  test('is encoded differently from every other that differs in any one way', () => {
    const names = new Map<string, string>();
    for (const [name, each] of Object.entries(variants)) {
      const encoding = encodeNamespace(each).join();
      expect(names.get(encoding), name).toBeUndefined();
      names.set(encoding, name);
    }
    expect(names.size).toBe(Object.keys(variants).length);
  });

  test('shares no key with another, and all of its keys with itself (hazard 35: both directions)', () => {
    const tokens = Int32Array.from({ length: 40 }, (_, i) => i % 5);
    const owners = new Map<string, string>();
    for (const [name, each] of Object.entries({
      ...variants,
      'another secret': { ...namespace, secretKey: secretKey.map((byte) => byte ^ 1) },
      'a shorter secret': { ...namespace, secretKey: secretKey.slice(0, 31) },
    })) {
      const [keys, again] = [new BlockKeys(), new BlockKeys()];
      expect(new KeyChain(each).hashBlocks(tokens, 0, keys)).toBeGreaterThan(0);
      new KeyChain({ ...each }).hashBlocks(tokens, 0, again);
      for (let i = 0; i < keys.length; i++) {
        const key = keys.toHex(i);
        expect(again.toHex(i)).toBe(key);
        expect(owners.get(key), `${name}, key ${i}`).toBeUndefined();
        owners.set(key, name);
      }
    }
  });

  test('does not depend on the order in which its extras were written', () => {
    const ab = encodeNamespace({ ...namespace, extras: { a: '1', b: '2' } });
    const ba = encodeNamespace({ ...namespace, extras: { b: '2', a: '1' } });
    expect(ab).toEqual(ba);
  });

  test('any two namespaces have equal encodings exactly if they are equal', () => {
    const short = fc.string({ unit: fc.constantFrom('a', 'b', '\0', '='), maxLength: 3 });
    const any = fc.record({
      tenant: fc.oneof(short, fc.uint8Array({ max: 1, maxLength: 4 })),
      epoch: fc.constantFrom(0, 1, 256, 2 ** 40),
      model: short.map((text) => `m${text}`),
      extras: fc.dictionary(short, short, { maxKeys: 3, noNullPrototype: true }),
    });
    const canonical = ({
      tenant,
      epoch,
      model,
      extras,
    }: Omit<KeyNamespace, 'secretKey' | 'layout'>): string =>
      JSON.stringify([
        typeof tenant === 'string' ? ['text', tenant] : ['bytes', ...tenant],
        epoch,
        model,
        Object.entries(extras ?? {}).sort(([a], [b]) => (a < b ? -1 : 1)),
      ]);
    fc.assert(
      fc.property(any, any, (a, b) => {
        const encodings = [a, b].map((each) => encodeNamespace({ secretKey, layout, ...each }).join());
        expect(encodings[0] === encodings[1]).toBe(canonical(a) === canonical(b));
      }),
      { numRuns: 1000 },
    );
  });

  test.each<[string, Partial<Record<keyof KeyNamespace, unknown>>]>([
    ['secretKey', { secretKey: new Uint8Array(15) }],
    ['secretKey', { secretKey: new Uint8Array(33) }],
    ['secretKey', { secretKey: 'text'.repeat(8) }],
    ['secretKey', { secretKey: undefined }],
    ['tenant', { tenant: undefined }],
    ['tenant', { tenant: 7 }],
    ['epoch', { epoch: -1 }],
    ['epoch', { epoch: 0.5 }],
    ['model', { model: '' }],
    ['unitInRange', { unitInRange: 1 }],
    ['unitInRange', { unit: head, unitInRange: 2 }],
    ['extras.adapter', { extras: { adapter: 7 } }],
  ])('names its bad field: %s in %o', (field, change) => {
    const bad = { ...namespace, ...change } as KeyNamespace;
    let caught: unknown;
    try {
      new KeyChain(bad);
    } catch (error) {
      caught = error;
    }
    expect(caught).toMatchObject({ code: 'TKV_CONFIG' });
    expect((caught as { field: string }).field).toContain(field);
  });

  test('never shows its secret in JSON or when inspected', async () => {
    const { inspect } = await import('node:util');
    const chain = new KeyChain(namespace);
    expect(JSON.stringify(chain)).toBe('{"elementsPerKey":4}');
    expect(inspect(chain, { showHidden: true, depth: 9 })).toBe('KeyChain { elementsPerKey: 4 }');
  });
});
