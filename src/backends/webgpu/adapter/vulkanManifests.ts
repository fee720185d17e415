/** Where Vulkan drivers register themselves. */

import fs from 'node:fs';
import path from 'node:path';

/** Whether the loader would find a driver. If not, asking Dawn would only print warnings. */
export function anyManifest(): boolean {
  const { env } = process;
  const home = env.HOME ?? '';
  const roots = [
    env.XDG_CONFIG_HOME || path.join(home, '.config'),
    ...(env.XDG_CONFIG_DIRS || '/etc/xdg').split(':'),
    '/etc',
    '/usr/local/etc',
    env.XDG_DATA_HOME || path.join(home, '.local/share'),
    ...(env.XDG_DATA_DIRS || '/usr/local/share:/usr/share').split(':'),
    '/usr/local/share',
    '/usr/share',
  ];
  const added = (env.VK_ADD_DRIVER_FILES ?? '') !== '';
  return added || roots.some((root) => holdsManifest(path.join(root, 'vulkan/icd.d')));
}

function holdsManifest(folder: string): boolean {
  try {
    return fs.readdirSync(folder).some((name) => name.endsWith('.json'));
  } catch {
    return false;
  }
}
