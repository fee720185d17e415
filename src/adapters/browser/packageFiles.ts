/** `src/packageFiles.ts` in a page: the files of the package are a part of the code, under addresses that nothing else has. */

import packageTexts from 'tierkv:files';

/** A folder without files on a disk. A build for browsers has the texts below it. */
const folder: URL = new URL('file:///tierkv/data/');

export function dataFolder(): URL {
  return folder;
}

/** A build for browsers writes the version in. */
export function packageVersion(): string {
  return packageTexts['../version'] ?? '';
}
