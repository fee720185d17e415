/**
 * A tier of a user's own, in a project of its own that sees the declarations of the package alone: its name joins `TierTitles` and its
 * options `KVRuntimeConfig` by module augmentation of `tierkv`, and nothing else is needed.
 */

import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';

const root = join(import.meta.dirname, '..', '..');
const folder = mkdtempSync(join(tmpdir(), 'tierkv-own-tier-'));
afterAll(() => rmSync(folder, { recursive: true }));

/** @returns what the compiler says, a line a mistake */
function compiled(name: string, config: object): readonly string[] {
  const file = join(folder, name);
  writeFileSync(file, JSON.stringify(config));
  const { stdout } = spawnSync(join(root, 'node_modules', '.bin', 'tsc'), ['-p', file, '--pretty', 'false'], {
    encoding: 'utf8',
  });
  return stdout.split('\n').filter((line) => line !== '');
}

beforeAll(() => {
  symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules'));
  mkdirSync(join(folder, 'types'));
  // declarations as the build writes them
  const declared = compiled('declare.json', {
    extends: join(root, 'tsconfig.json'),
    compilerOptions: {
      ...{ noCheck: true, noEmit: false, emitDeclarationOnly: true, stripInternal: true },
      ...{ rootDir: join(root, 'src'), outDir: join(folder, 'types') },
    },
    include: [],
    files: [join(root, 'src/index.ts')],
  });
  expect(declared).toEqual([]);
});

/** The project of a user, in strict mode, with this program. */
const check = (name: string, program: string): readonly string[] => {
  writeFileSync(join(folder, name), program);
  return compiled(`${name}.json`, {
    compilerOptions: {
      ...{
        module: 'nodenext',
        target: 'es2024',
        lib: ['es2024', 'esnext', 'dom'],
        strict: true,
        noEmit: true,
      },
      ...{ exactOptionalPropertyTypes: true, skipLibCheck: true, types: ['node', '@webgpu/types'] },
      paths: { tierkv: ['./types/index.d.ts'] },
    },
    files: [name],
  });
};

const augmentation = `
declare module 'tierkv' {
  interface TierTitles {
    shelf: 'Shelf';
  }
  interface KVRuntimeConfig {
    /** Bytes of blocks that the shelf holds. Default: off. */
    readonly shelfBytes?: number;
  }
}
`;

const program = `
import {
  addTierName,
  corrupt,
  KVRuntime,
  type KVRuntimeConfig,
  loaded,
  type PoolShape,
  refused,
  registerTier,
  SlotLedger,
  type StoreItem,
  type StoreResult,
  type Tier,
  type TierName,
  type TierRow,
  type TierStore,
} from 'tierkv';

${augmentation}

const SHELF: Tier = addTierName('shelf', 'Shelf');

class Shelf implements TierStore {
  readonly tier: Tier = SHELF;
  readonly capacityBytes: number;
  readonly verifies = { onWrite: false, onRead: false };
  readonly #ledger: SlotLedger;
  readonly #bytes: Map<number, Uint8Array> = new Map();

  constructor(shape: PoolShape) {
    this.capacityBytes = shape.capacityBytes;
    this.#ledger = new SlotLedger(shape);
  }

  describe(): Record<string, string | number> {
    return { store: 'shelf', slots: this.#bytes.size };
  }

  write(items: readonly StoreItem[]): Promise<readonly StoreResult[]> {
    return Promise.resolve(
      items.map((item) => {
        const refusal = this.#ledger.refuseWrite(item);
        if (refusal !== undefined) return refusal;
        this.#ledger.take(item);
        this.#bytes.set(item.slot, item.bytes.slice());
        this.#ledger.fill(item);
        return loaded;
      }),
    );
  }

  read(items: readonly StoreItem[]): Promise<readonly StoreResult[]> {
    return Promise.resolve(
      items.map((item) => {
        const bytes = this.#bytes.get(item.slot);
        if (bytes === undefined) return corrupt('gone');
        if (bytes.length !== item.bytes.length) return refused('another size');
        item.bytes.set(bytes);
        return loaded;
      }),
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {}
}

const row: TierRow<KVRuntimeConfig> = {
  name: 'shelf',
  title: 'Shelf',
  optionNames: ['shelfBytes'],
  fieldNames: { 'shelf.capacityBytes': 'shelfBytes' },
  canBeTop: false,
  check() {},
  wish: ({ shelfBytes }) => (shelfBytes === undefined ? undefined : { field: 'shelfBytes', bytes: shelfBytes }),
  async open({ shape }) {
    const store = new Shelf(shape);
    return { store, [Symbol.asyncDispose]: () => store[Symbol.asyncDispose]() };
  },
};

registerTier(row);
const shelf: TierName = 'shelf';
export const open = (config: KVRuntimeConfig): Promise<KVRuntime> =>
  KVRuntime.open({ ...config, shelfBytes: 2 ** 30, offload: { [shelf]: { policy: 'eager' } } });
`;

it('a tier with a name and options of its own compiles against the package', () => {
  expect(check('shelf.ts', program)).toEqual([]);
});

it('control: without the augmentation neither the name nor the option is known', () => {
  const said = check('bare.ts', program.replace(augmentation, '')).join('\n');
  expect(said).toMatch(/'"shelf"' is not assignable to (type|parameter of type) 'TierName'/);
  expect(said).toMatch(/'shelfBytes' does not exist in type 'KVRuntimeConfig'/);
});

it('a name of a tier that was not added is a mistake, and so is an option', () => {
  const wrong = `${program}\nexport const other: TierName = 'shelv';\nexport const config: Partial<KVRuntimeConfig> = { shelvBytes: 1 };\n`;
  const said = check('wrong.ts', wrong);
  expect(said).toHaveLength(2);
  expect(said.join('\n')).toMatch(/"shelv".*TierName[\s\S]*shelvBytes/);
});
