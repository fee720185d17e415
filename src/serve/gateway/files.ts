/** Files that a gateway reads: API keys of tenants, secrets, and the control plane of a deployment. */

import { readText } from '../../io/files/inputs.ts';
import { configError, nearestName, TierKVError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import { readControl } from '../../sim/build/deployment.ts';
import type { ControlConfig } from '../../sim/control/controlPlane.ts';
import type { GatewayTiming } from '../../sim/control/gatewayQueue.ts';
import { readYaml } from '../../sim/description/fields.ts';

/**
 * Reads the tenants of API keys: a line `key=tenant` each; empty lines and lines that begin with # say nothing.
 * @throws TKV_INPUT naming file and line, and never a key
 */
export function readTenants(path: string): ReadonlyMap<string, string> {
  checkInputs({ path }, { path: is.name() });
  const tenants = new Map<string, string>();
  for (const [i, line] of readText(path).split('\n').entries()) {
    const text = line.trim();
    if (text === '' || text.startsWith('#')) continue;
    const [key, tenant, ...more] = text.split('=').map((part) => part.trim());
    const wrong = !key || !tenant || more.length > 0 || /\s/.test(key);
    if (wrong || tenants.has(key)) {
      const problem = wrong ? 'must be key=tenant' : 'has a key that stands above already';
      throw new TierKVError('TKV_INPUT', `${path}:${i + 1} ${problem}. Write one key a line.`, {
        path,
        line: i + 1,
      });
    }
    tenants.set(key, tenant);
  }
  if (tenants.size === 0)
    throw new TierKVError('TKV_INPUT', `${path} has no key. Write key=tenant.`, { path });
  return tenants;
}

/** Reads a key or a secret, which is the first line of a file. @param field the option that names the file */
export function readSecret(path: string, field: string): string {
  checkInputs({ path, field }, { path: is.name(), field: is.text() });
  const [line] = readText(path).split('\n');
  if (line.trim() !== '') return line.trim();
  throw configError(field, `names ${path}, whose first line is empty`, 'Write the key there.');
}

/** Reads a file with a secret of 16 to 32 bytes in hexadecimal digits. */
export function readKeySecret(path: string, field: string): Uint8Array {
  checkInputs({ path, field }, { path: is.name(), field: is.text() });
  const text = readSecret(path, field);
  if (/^([0-9a-f]{2}){16,32}$/i.test(text)) return Buffer.from(text, 'hex');
  throw configError(
    field,
    `names ${path}, whose first line must be 32 to 64 hexadecimal digits`,
    'Make one: openssl rand -hex 32.',
  );
}

/** Files of policies for other programs, by the key that only they have. */
const foreignFiles: readonly (readonly [key: string, what: string])[] = [
  ['apiVersion', 'a resource of Kubernetes, such as an EndpointPickerConfig of llm-d'],
  ['schedulingProfiles', 'an EndpointPickerConfig of llm-d'],
  ['model_list', 'a configuration of LiteLLM'],
  ['static_resources', 'a configuration of Envoy'],
];

/**
 * Reads the section `control` of a deployment file, as `tierkv simulate` does.
 * @throws TKV_CONFIG for a file without that section
 */
export function readControlFile(path: string): {
  readonly control: Partial<ControlConfig>;
  readonly queue: GatewayTiming | undefined;
} {
  checkInputs({ path }, { path: is.name() });
  const root = readYaml(readText(path), path);
  requireControl(root.keys(), path);
  const hasSignals = root.section('control')?.has('signals') === true;
  const { control, gateway } = readControl(root);
  // a simulator's signals are old unless it says otherwise; here they are as old as they are
  const { signals, ...rest } = control;
  return { control: hasSignals ? control : rest, queue: gateway ?? undefined };
}

/** A file that says nothing of policies would have the gateway go round robin without a word. */
function requireControl(names: readonly string[], path: string): void {
  if (names.includes('control')) return;
  const foreign = foreignFiles.find(([key]) => names.includes(key));
  if (foreign !== undefined) {
    const remedy = 'Write its rules in the section "control" of a deployment file (docs/guide/simulate.md).';
    throw configError('control', `names ${path}, which is ${foreign[1]}, and no deployment file`, remedy);
  }
  const near = names
    .map((name) => [name, nearestName(name, ['control'])] as const)
    .find(([, found]) => found);
  const remedy =
    near === undefined
      ? (name: (field: string) => string): string =>
          `Give it a section "control", or leave ${name('control')} out.`
      : `Write "control" for "${near[0]}".`;
  const has = names.length === 0 ? 'has no section' : `has ${names.slice(0, 8).join(', ')}`;
  throw configError('control', `names ${path}, which ${has} and no section "control"`, remedy);
}
