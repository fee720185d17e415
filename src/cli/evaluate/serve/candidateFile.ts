/** A candidate as a framework leaves it in a file. */

import path from 'node:path';
import { parseJson } from '../../../runtime/boundedJson.ts';
import { TierKVError } from '../../../runtime/errors.ts';
import { readText } from '../../input/index.ts';
import { openPolicy } from '../openPolicy.ts';

/**
 * Parameters of `evaluate`: a bundle, or the text of one slot on top of the baseline. A file of any name but
 * `.wasm` and `.js` is a text: the JSON of a bundle or of a policy, or a Starlark program.
 * @throws TKV_IO where it cannot be read
 */
export function candidateOf(file: string, slot: string): object {
  const extension = path.extname(file);
  if (extension === '' || extension === '.wasm' || extension === '.js') {
    return { bundle: openPolicy(file, slot) };
  }
  const text = readText(file);
  return bundleOf(text) ?? { candidate: { [slot]: text } };
}

/** The bundle of a JSON text; undefined for a policy of one slot, and for what is no JSON. */
function bundleOf(text: string): object | undefined {
  let value: unknown;
  try {
    value = parseJson(text, (problem) => new TierKVError('TKV_INPUT', problem));
  } catch {
    return undefined;
  }
  return typeof value === 'object' && value !== null && !('type' in value) ? { bundle: value } : undefined;
}
