/** Packages that only some users have: imported when they are needed, and an error that says what to install without. */

import { TierKVError } from '../../runtime/errors.ts';

/**
 * @param use what needs the package, for the error
 * @throws TKV_CONFIG where it is not installed
 */
export async function importPeer<T>(name: string, use: string): Promise<T> {
  try {
    return (await import(name)) as T;
  } catch (cause) {
    throw new TierKVError(
      'TKV_CONFIG',
      `${use} need the optional package ${name}, which is not installed. Run: npm install ${name}`,
      { field: name, cause },
    );
  }
}
