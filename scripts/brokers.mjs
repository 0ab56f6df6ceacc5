#!/usr/bin/env node
import { main } from './brokers/cli.mjs'

process.exitCode = await main(process.argv.slice(2))
