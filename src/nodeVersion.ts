/**
 * Which Node tierkv runs on. This file, and what checks by it, load on older ones too, so that they can say
 * what is missing. A test holds the version to `engines` in package.json.
 */

const OLDEST = [22, 12] as const;

/** The message for users of an older Node; undefined where `version` will do. @param version as in 20.20.2 */
export function nodeIsTooOld(version: string): string | undefined {
  const [major, minor] = version.split('.').map(Number);
  if (major > OLDEST[0] || (major === OLDEST[0] && minor >= OLDEST[1])) return undefined;
  return `tierkv needs Node.js ${OLDEST.join('.')} or later; this is ${version}.`;
}
