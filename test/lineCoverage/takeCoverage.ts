/** Each test file hands its coverage in before its process is ended. */

import { takeCoverage } from 'node:v8';
import { afterAll } from 'vitest';

afterAll(() => takeCoverage());
