/**
 * Imported before all else by the doors that need Node: on one that is too old the import fails with one
 * clear line, instead of a method that is missing somewhere later.
 */

import { nodeIsTooOld } from './nodeVersion.ts';
import { TierKVError } from './runtime/errors.ts';

const problem = nodeIsTooOld(process.versions.node);
if (problem !== undefined) throw new TierKVError('TKV_STATE', problem);
