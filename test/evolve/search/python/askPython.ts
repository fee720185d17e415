/** The search packages of PyPI as second opinions, where this machine's python3 has them. */

import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const script = fileURLToPath(new URL('./crossCheck.py', import.meta.url));

/** Whether python3 can import the package; says loudly that a test is skipped where it cannot. */
export function lacksPackage(name: string): boolean {
  try {
    execFileSync('python3', ['-c', `import ${name}`], { stdio: 'ignore' });
    return false;
  } catch {
    console.warn(`SKIPPED: ${name} is not here as a second opinion (pip install ${name})`);
    return true;
  }
}

export function askPython<T>(task: object): T {
  const output = execFileSync('python3', [script], { input: JSON.stringify(task), maxBuffer: 1 << 28 });
  // the script answers in the form of its task
  return JSON.parse(output.toString()) as T;
}
