/** `--set pools[0].replicas=4`: fields of a deployment file, changed before it is read. */

import { isMap, isSeq, parseDocument } from 'yaml';
import { configError } from '../../../runtime/errors.ts';
import { readYaml } from '../../../sim/workload/spec/reader.ts';

/**
 * The text with the fields set. A field may be new, what it lies in may not.
 * @param settings as they were given, a line each
 * @throws TKV_CONFIG for a setting that is none, or whose place is not there
 */
export function applySettings(text: string, file: string, settings: string | undefined): string {
  if (settings === undefined) return text;
  readYaml(text, file); // refuses what nests or costs too much, with file and line
  const document = parseDocument(text);
  // what is wrong with the text is said by the reader, with file and line
  if (document.errors.length > 0) return text;
  for (const setting of settings.split('\n')) {
    const at = setting.indexOf('=');
    const path = at < 1 ? [] : pathOf(setting.slice(0, at));
    const value = settingValue(setting, setting.slice(at + 1));
    if (path.length === 0) throw configError('--set', `is "${setting}"`, 'Write field=value.');
    const parent = path.length === 1 ? document.contents : document.getIn(path.slice(0, -1));
    const last = path.at(-1);
    const fits = typeof last === 'number' ? isSeq(parent) && last < parent.items.length : isMap(parent);
    if (!fits)
      throw configError('--set', `is "${setting}", which is nowhere in the file`, 'Look at the path.');
    // as a node, so that the next setting may go into it
    document.setIn(path, document.createNode(value));
  }
  return document.toString();
}

/** The value of a setting, plain or as YAML. */
function settingValue(setting: string, text: string): unknown {
  const remedy = 'Write field=value, with a value as in the file.';
  // under a key it is read with the limits of a file
  readYaml(`value:\n  ${text}`, '--set');
  const document = parseDocument(text);
  if (document.errors.length > 0) throw configError('--set', `is "${setting}", which is not YAML`, remedy);
  try {
    return document.toJS() as unknown;
  } catch {
    throw configError('--set', `is "${setting}", which is not YAML`, remedy);
  }
}

/** `pools[0].engine.max_num_seqs` as keys and indices; empty for what is none. */
function pathOf(text: string): (string | number)[] {
  if (!/^[\w-]+(\[\d+\]|\.[\w-]+)*$/.test(text)) return [];
  return [...text.matchAll(/[\w-]+/g)].map(([part]) => (/^\d+$/.test(part) ? Number(part) : part));
}
