/** Opens a policy by its name: a preset, or a file with a bundle or a program. */

import path from 'node:path';
import { unreadable } from '../../io/files/inputErrors.ts';
import { readBytes, readText } from '../../io/files/inputs.ts';
import { configError, TierKVError, unknownName } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import { bindBundle } from '../evolve/binding/bind.ts';
import { type PolicyBundle, type PolicySlot, policySlots } from '../evolve/bundle/policyBundle.ts';
import { preset, withItsScheduler } from '../evolve/bundle/presets.ts';
import { parseBundle } from '../evolve/bundle/readBundle.ts';
import type { PolicyLanguage } from '../sandbox/program.ts';

const languages: Readonly<Record<string, PolicyLanguage>> = {
  '.star': 'starlark',
  '.wasm': 'wasm',
  '.js': 'javascript',
};

/**
 * Opens a policy by its name or its file, as a bundle.
 * @param asked a file `.json` (a bundle), `.star`, `.wasm` or `.js` (a program), or the name of a preset
 * @param slot of a program
 * @throws TKV_CONFIG, TKV_INPUT, TKV_IO with what is wrong and the nearest name
 */
export function openPolicy(asked: string, slot: string = 'routing'): PolicyBundle {
  checkInputs({ asked, slot }, { asked: is.text(), slot: is.optional(is.text()) });
  const extension = path.extname(asked);
  if (extension === '.json') {
    const text = readText(asked);
    try {
      return parseBundle(text, asked);
    } catch (error) {
      if (!isPlan(text)) throw error;
      throw configError(
        'policy',
        `is ${asked}, which is a plan of evaluation`,
        (name) => `Give it as ${name('plan')} ${asked}.`,
      );
    }
  }
  if (!Object.hasOwn(languages, extension)) return preset(asked);
  const found = policySlots.find((each): each is PolicySlot => each === slot);
  if (found === undefined) throw unknownName('slot', slot, policySlots);
  const language = languages[extension];
  const source = language === 'wasm' ? bytesOf(asked) : readText(asked);
  return { name: path.basename(asked), ...withItsScheduler(found, { type: 'code', language, source }) };
}

/** Whether a text that is not a bundle has what plans have, and bundles do not. */
function isPlan(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && ('workloads' in value || 'suites' in value);
  } catch {
    return false;
  }
}

function bytesOf(file: string): string {
  try {
    return readBytes(file, file).toString('base64');
  } catch (error) {
    throw unreadable(file, error);
  }
}

/**
 * Compiles and binds bundles, so that a mistake in a text shows before anything is simulated.
 * @throws the first error, with the name of the policy before it
 */
export async function refuseUnbound(bundles: readonly PolicyBundle[]): Promise<void> {
  for (const bundle of bundles) {
    try {
      await bindBundle(bundle);
    } catch (cause) {
      if (!(cause instanceof TierKVError)) throw cause;
      const { code, message, field, line } = cause;
      throw new TierKVError(code, `${bundle.name ?? 'a policy'}: ${message}`, {
        ...(field === undefined ? {} : { field }),
        ...(line === undefined ? {} : { line }),
        cause,
      });
    }
  }
}
