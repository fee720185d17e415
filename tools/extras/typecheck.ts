/** Checks what imports packages of this folder against their own types, where they are installed. */

import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { filesOfExtras, isInstalled } from '../../test/extras.ts';

const absent = [...Object.keys(filesOfExtras), 'webpack'].filter((name) => !isInstalled(name));
if (absent.length > 0) {
  console.log(`Types of ${absent.join(', ')} were not checked: npm run extras installs them.`);
} else {
  const root = join(import.meta.dirname, '..', '..');
  const tsc = join(root, 'node_modules', 'typescript', 'bin', 'tsc');
  const { status } = spawnSync(process.execPath, [tsc, '-p', join(root, 'tsconfig.extras.json')], {
    stdio: 'inherit',
  });
  process.exitCode = status ?? 1;
}
