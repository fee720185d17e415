/** The five rules of the router-search experiment, each as parameters or tree, in Starlark, and in WASM. */

import fs from 'node:fs';
import path from 'node:path';
import { wasmFile } from '../../../examples/policies/compileWasm.ts';
import type { PolicyBundle } from '../../../src/policy/evolve/bundle/policyBundle.ts';
import { parseBundle } from '../../../src/policy/evolve/bundle/readBundle.ts';

const folder = path.join(import.meta.dirname, '..', '..', '..', 'examples', 'policies');

export const rules = ['evolved', 'oneToOne', 'lor', 'glia', 'llq'] as const;
export type Rule = (typeof rules)[number];

export const ways = ['data', 'starlark', 'wasm'] as const;
export type Way = (typeof ways)[number];

function code(language: 'starlark' | 'wasm', source: string): PolicyBundle {
  return { routing: { type: 'code', language, source } };
}

export function bundleOf(rule: Rule, way: Way): PolicyBundle {
  switch (way) {
    case 'data': {
      const file = path.join(folder, 'bundles', `${rule}.json`);
      return parseBundle(fs.readFileSync(file, 'utf8'), file);
    }
    case 'starlark':
      return code('starlark', fs.readFileSync(path.join(folder, 'starlark', `${rule}.star`), 'utf8'));
    case 'wasm':
      return code('wasm', fs.readFileSync(wasmFile(rule)).toString('base64'));
  }
}
